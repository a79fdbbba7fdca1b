#include "engine/choice/endings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "engine/choice/leaf_scores.h"
#include "engine/choice/path_reader.h"
#include "sampling/token_selector.h"

namespace eliza {
namespace {

using Node = TokenTrie::Node;

class Scorer {
public:
    Scorer(Sequence & sequence, const Options & options, const std::vector<Ending> & endings, WantedScores wanted)
        : sequence_(sequence), options_(options), endings_(endings), wanted_(wanted), places_(endings.size()) {}

    std::vector<EndingScores> run() {
        list_reads();
        PathReader(sequence_, options_)
            .read(
                paths_, [this](size_t path) { return needs_whole_row(path); },
                [this](size_t path, const LogitsRow & row) { take(path, row); });
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
                log_total = is_known ? log_total : finite_total(log_sum_exp(row.whole(), n_vocab));
                is_known = true;
                read.log_total = log_total;
            }
        }
    }

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
    const std::vector<Ending> & endings_;
    const WantedScores wanted_;

    std::vector<Read> reads_;
    std::vector<std::unordered_map<Node, size_t>> places_;  // by ending and node: the index in reads_
    std::vector<TokenPath> paths_;                          // ascending
    std::vector<std::vector<size_t>> reads_after_;          // by path: indices in reads_
};

}  // namespace

void require_fit(const Decoder & decoder, size_t n_before, const Ending & ending, const std::string & name) {
    ending.choices->check_model(decoder.model());
    try {
        decoder.model().check_tokens(ending.tokens.data(), ending.tokens.size());
    } catch (const Error & error) {
        throw Error(error.status(), name + ": " + error.what());
    }
    const size_t n_needed = n_before + ending.tokens.size() + ending.choices->longest();
    if (n_needed > static_cast<size_t>(decoder.n_ctx())) {
        throw ContextFull(name + " comes to " + std::to_string(n_needed) + " tokens (option n_ctx is " +
                          std::to_string(decoder.n_ctx()) + ")");
    }
}

std::vector<EndingScores> score_endings(Sequence & sequence, const Options & options,
                                        const std::vector<Ending> & endings, WantedScores wanted) {
    return Scorer(sequence, options, endings, wanted).run();
}

}  // namespace eliza
