#include "engine/choice/endings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "engine/choice/leaf_scores.h"
#include "engine/choice/tree_plan.h"
#include "sampling/token_selector.h"

namespace eliza {
namespace {

using Node = TokenTrie::Node;

class Scorer {
public:
    Scorer(Sequence & sequence, const Options & options, eliza_llm_stream_stats_t & stats,
           const std::vector<Ending> & endings, WantedScores wanted)
        : sequence_(sequence),
          options_(options),
          stats_(stats),
          endings_(endings),
          wanted_(wanted),
          n_prompt_(sequence.tokens().size()),
          places_(endings.size()) {}
    ~Scorer() { remove_endings(); }
    Scorer(const Scorer &) = delete;
    Scorer & operator=(const Scorer &) = delete;

    std::vector<EndingScores> run() {
        list_reads();
        read_after_prompt();
        if (options_.strategy != Strategy::token_by_token) {
            read_in_trees();
            read_long_ones();
        }
        read_one_by_one();
        std::vector<EndingScores> scores;
        scores.reserve(endings_.size());
        for (size_t i = 0; i < endings_.size(); ++i) {
            scores.push_back(scores_of(i));
        }
        return scores;
    }

private:
    // The part of a row of logits that an ending needs at one node of its labels.
    struct Read {
        size_t ending;
        Node node;
        bool whole;
        std::vector<float> children{};
        double log_total = 0.0;
    };

    // Lists the paths after which rows of logits are needed, and the reads of each path.
    void list_reads() {
        std::vector<TokenPath> paths;
        for (size_t i = 0; i < endings_.size(); ++i) {
            const TokenTrie & trie = endings_[i].trie();
            for (Node node = 0; node < trie.n_nodes(); ++node) {
                sequence_.cancelled().throw_if_set();
                const bool of_legal = wanted_.legal && trie.is_branch(node);
                const bool of_joint = wanted_.joint && !trie.children(node).empty();
                const bool of_mass = wanted_.option_mass && node == TokenTrie::root;
                if (!of_legal && !of_joint && !of_mass) {
                    continue;
                }
                const bool whole = of_joint || of_mass || needs_vocabulary(trie, node);
                places_[i].emplace(node, reads_.size());
                reads_.push_back({i, node, whole});
                const std::vector<llama_token> & tokens = endings_[i].tokens;
                paths.emplace_back(TokenSpan{tokens.data(), static_cast<uint32_t>(tokens.size())}, trie.path(node));
            }
        }
        std::vector<size_t> order(reads_.size());
        std::iota(order.begin(), order.end(), size_t(0));
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return paths[a] < paths[b]; });
        for (const size_t read : order) {
            if (paths_.empty() || paths_.back() < paths[read]) {
                paths_.push_back(std::move(paths[read]));
                reads_after_.emplace_back();
            }
            reads_after_.back().push_back(read);
        }
        is_read_.assign(paths_.size(), false);
    }

    bool needs_whole_row(size_t path) const {
        const std::vector<size_t> & reads = reads_after_[path];
        return !options_.restricts_head() ||
               std::any_of(reads.begin(), reads.end(), [&](size_t read) { return reads_[read].whole; });
    }

    void take(size_t path, const LogitsRow & row) {
        const auto n_vocab = static_cast<size_t>(sequence_.decoder().model().n_vocab());
        double log_total = 0.0;
        bool is_known = false;
        for (const size_t i : reads_after_[path]) {
            Read & read = reads_[i];
            const TokenSpan children = endings_[read.ending].trie().children(read.node);
            read.children.resize(children.size);
            row.gather(children, read.children.data());
            if (read.whole) {
                log_total = is_known ? log_total : log_sum_exp(row.whole(), n_vocab);
                is_known = true;
                read.log_total = log_total;
            }
        }
        is_read_[path] = true;
    }

    // Reads the row directly after the prompt, for endings without tokens.
    void read_after_prompt() {
        if (paths_.empty() || !paths_.front().empty()) {
            return;
        }
        if (!needs_whole_row(0)) {
            sequence_.decode(Rows::some);
            take(0, sequence_.row());
        } else {
            take(0, LogitsRow(sequence_.logits()));
        }
    }

    // Decodes as many whole paths in one pass as fit. Skips paths that are longer than a pass.
    void read_in_trees() {
        const size_t n_empty = !paths_.empty() && paths_.front().empty() ? 1 : 0;
        read_trees({paths_.begin() + static_cast<std::ptrdiff_t>(n_empty), paths_.end()}, n_empty);
    }

    // Reads paths that are longer than a pass. All tokens of such a path except the last are appended to the prompt.
    // Its last token, and the rest of all longer paths that begin with this path, are decoded as trees.
    void read_long_ones() {
        const TreeLimits limits = sequence_.decoder().tree_limits();
        for (size_t first = 0; first < paths_.size() && limits.lanes > 0; ++first) {
            if (is_read_[first]) {
                continue;
            }
            const TokenPath & shortest = paths_[first];
            const size_t n_front = shortest.size() - 1;
            std::vector<TokenPath> rest;
            for (size_t i = first; i < paths_.size() && TokenPath::alike(paths_[i], shortest) == shortest.size(); ++i) {
                rest.push_back(paths_[i].behind(n_front));
            }
            put_after_prompt(shortest, n_front);
            read_trees(rest, first);
        }
    }

    // Decodes paths as trees after the tokens of the sequence. paths[i] is the end of paths_[first + i].
    void read_trees(const std::vector<TokenPath> & paths, size_t first) {
        for (const TreeBatch & tree : plan_paths(paths, sequence_.decoder().tree_limits())) {
            bool whole = false;
            for (const TreeBatch::Node & node : tree.nodes) {
                whole = whole || (node.wants_logits && needs_whole_row(first + node.node));
            }
            const auto on_row = [&](int32_t place, const LogitsRow & row) {
                if (place >= 0) {
                    take(first + tree.nodes[static_cast<size_t>(place)].node, row);
                }
            };
            try {
                sequence_.decode_tree(tree, whole ? Rows::whole : Rows::some, on_row, [] { return -1; });
            } catch (const ContextFull &) {
                return;  // there may still be room for one path at a time
            }
            ++stats_.tree_passes;
            stats_.strategies |= ELIZA_STRATEGY_TREE;
        }
    }

    // Reads the remaining paths one at a time: paths that could not be read in a tree. If the model's cache cannot
    // fork, or with the reference strategy, no path has been read in a tree.
    void read_one_by_one() {
        if (std::find(is_read_.begin(), is_read_.end(), false) == is_read_.end()) {
            return;
        }
        remove_endings();
        // Tokens cannot be removed from a recurrent state, so the state is copied and restored.
        const bool puts_back = sequence_.decoder().model().is_recurrent();
        const std::vector<llama_token> prompt = sequence_.tokens();
        const std::vector<uint8_t> state = puts_back ? sequence_.copy_state() : std::vector<uint8_t>();
        for (size_t path = 0; path < paths_.size(); ++path) {
            if (is_read_[path]) {
                continue;
            }
            put_after_prompt(paths_[path], paths_[path].size());
            take(path, LogitsRow(sequence_.logits()));
            if (puts_back) {
                remove_endings();
                sequence_.restore_state(prompt, state);
            }
        }
        const bool reference = options_.strategy == Strategy::token_by_token;
        stats_.strategies |= reference ? ELIZA_STRATEGY_TOKEN_BY_TOKEN : ELIZA_STRATEGY_SKIP_AHEAD;
    }

    // Makes the sequence consist of the prompt and the first n tokens of a path. Keeps tokens that it already has.
    void put_after_prompt(const TokenPath & path, size_t n) {
        const std::vector<llama_token> & held = sequence_.tokens();
        size_t n_common = 0;
        while (n_common < std::min(n, held.size() - n_prompt_) && held[n_prompt_ + n_common] == path[n_common]) {
            ++n_common;
        }
        std::vector<llama_token> more;
        for (size_t i = n_common; i < n; ++i) {
            more.push_back(path[i]);
        }
        sequence_.truncate(n_prompt_ + n_common);
        sequence_.append(more.data(), more.size());
    }

    void remove_endings() { sequence_.truncate(n_prompt_); }

    EndingScores scores_of(size_t ending) const {
        const TokenTrie & trie = endings_[ending].trie();
        const auto at = [&](Node node) {
            const Read & read = reads_[places_[ending].at(node)];
            return NodeLogits{read.children.data(), read.log_total};
        };
        EndingScores scores;
        if (wanted_.legal) {
            scores.legal = legal_logprobs(trie, at);
        }
        if (wanted_.joint) {
            scores.joint = joint_logprobs(trie, at);
        }
        if (wanted_.option_mass) {
            const NodeLogits root = at(TokenTrie::root);
            const double of_options = log_sum_exp(root.children, trie.children(TokenTrie::root).size);
            scores.option_mass = std::min(1.0, std::exp(of_options - root.log_total));
        }
        return scores;
    }

    Sequence & sequence_;
    const Options & options_;
    eliza_llm_stream_stats_t & stats_;
    const std::vector<Ending> & endings_;
    const WantedScores wanted_;
    const size_t n_prompt_;

    std::vector<Read> reads_;
    std::vector<std::unordered_map<Node, size_t>> places_;  // by ending and node: the index in reads_
    std::vector<TokenPath> paths_;                          // ascending
    std::vector<std::vector<size_t>> reads_after_;          // by path: indices in reads_
    std::vector<bool> is_read_;
};

}  // namespace

std::vector<EndingScores> score_endings(Sequence & sequence, const Options & options, eliza_llm_stream_stats_t & stats,
                                        const std::vector<Ending> & endings, WantedScores wanted) {
    return Scorer(sequence, options, stats, endings, wanted).run();
}

}  // namespace eliza
