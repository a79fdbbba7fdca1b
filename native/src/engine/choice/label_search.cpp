#include "engine/choice/label_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/choice/leaf_scores.h"
#include "engine/choice/path_reader.h"
#include "sampling/token_selector.h"

namespace eliza {
LabelSearch::LabelSearch(Sequence & sequence, const Options & options, Place place)
    : sequence_(sequence), options_(options), place_(std::move(place)), prompt_(sequence.tokens()) {}

bool LabelSearch::is_for(const Place & place) const {
    return place.rule == place_.rule && place.labels == place_.labels && place.after == place_.after &&
           place.from == place_.from && sequence_.tokens() == prompt_;
}

Ranking LabelSearch::rank(const RankWish & wish) {
    LabelGroups groups(trie(), wish.groups);
    const int64_t before = sequence_.counts().forward_passes;
    const auto n_passes = [&] { return sequence_.counts().forward_passes - before; };
    const size_t n_read_before = rows_.size();
    Ranking ranking;
    for (;;) {
        sequence_.cancelled().throw_if_set();
        const View view = look(groups);
        ranking = wish.groups.empty() ? rank_labels(view, wish.n) : rank_groups(view, groups, wish.n);
        if (ranking.proven) {
            break;
        }
        if (rows_.empty() && place_.after.empty() && !sequence_.has_undecoded()) {
            read({place_.from});  // without a pass
            continue;
        }
        if (wish.max_passes && n_passes() >= *wish.max_passes) {
            break;
        }
        // Prefixes that are less probable than the last label found cannot lead to a better one.
        const bool is_full = wish.groups.empty() && ranking.best.size() == wish.n;
        const double threshold = is_full ? ranking.best.back().logprob : log_zero;
        if (!wish.max_passes && is_everything_cheaper(view, threshold)) {
            read(all_below(view, threshold));
        } else {
            read(next_reads(view, threshold, wish.n));
        }
    }
    ranking.passes = n_passes();
    ranking.reads = static_cast<int64_t>(rows_.size() - n_read_before);
    return ranking;
}

bool LabelSearch::needs_row(Node node) const {
    return place_.rule == LabelRule::legal ? trie().is_branch(node) : !trie().children(node).empty();
}

bool LabelSearch::needs_whole(Node node) const {
    return place_.rule == LabelRule::joint || !options_.restricts_head() || needs_vocabulary(trie(), node);
}

// Walks from the root through all nodes whose rows are known.
LabelSearch::View LabelSearch::look(const LabelGroups & groups) const {
    const bool is_grouped = !groups.empty();
    View view;
    double weights = 0.0, evenness = 0.0, highest = 0.0;
    const auto find = [&](int32_t leaf, double logprob) {
        view.found.push_back({is_grouped ? groups.of_label(leaf) : leaf, logprob});
    };
    std::vector<Prefix> to_visit{{place_.from, 0.0, place_.after.size()}};
    while (!to_visit.empty()) {
        Prefix at = to_visit.back();
        to_visit.pop_back();
        const auto is_end = [&] { return trie().children(at.node).empty(); };
        const auto is_of_one_group = [&] { return is_grouped && groups.below(at.node) != LabelGroups::mixed; };
        while (!is_of_one_group() && !needs_row(at.node) && !is_end()) {
            at.node = trie().first_child(at.node);
            ++at.n_tokens;
        }
        if (is_of_one_group()) {
            view.found.push_back({groups.below(at.node), at.logprob});
            continue;
        }
        if (is_end()) {
            find(trie().leaf(at.node), at.logprob);
            continue;
        }
        const bool is_label = trie().leaf(at.node) != TokenTrie::none;
        if (is_label && place_.rule == LabelRule::joint) {
            find(trie().leaf(at.node), at.logprob);
        }
        const auto known = rows_.find(at.node);
        if (known == rows_.end()) {
            view.open.push_back(at);
            continue;
        }
        const Row & row = known->second;
        for (uint32_t i = 0; i < row.children.size(); ++i) {
            to_visit.push_back({trie().first_child(at.node) + i, at.logprob + row.children[i], 1});
        }
        if (is_label && place_.rule == LabelRule::legal) {
            find(trie().leaf(at.node), at.logprob + row.ending);
        }
        const double weight = std::exp(at.logprob);
        weights += weight;
        evenness += weight * row.evenness;
        highest += weight * row.highest;
    }
    if (weights > 0.0) {
        view.evenness = evenness / weights;
        view.highest = highest / weights;
    }
    std::stable_sort(view.open.begin(), view.open.end(),
                     [](const Prefix & a, const Prefix & b) { return a.logprob > b.logprob; });
    return view;
}

Ranking LabelSearch::rank_labels(const View & view, size_t n) {
    std::vector<Found> found = view.found;
    const auto is_better = [](const Found & a, const Found & b) {
        return a.logprob > b.logprob || (a.logprob == b.logprob && a.label < b.label);
    };
    const auto end_of_best = found.begin() + static_cast<std::ptrdiff_t>(std::min(n, found.size()));
    std::partial_sort(found.begin(), end_of_best, found.end(), is_better);
    Ranking ranking;
    for (auto each = found.begin(); each != end_of_best; ++each) {
        ranking.best.push_back({each->label, each->logprob, each->logprob});
    }
    std::for_each(end_of_best, found.end(), [&](const Found & each) { ranking.rest += std::exp(each.logprob); });
    for (const Prefix & prefix : view.open) {
        ranking.rest += std::exp(prefix.logprob);
    }
    ranking.rest = std::min(ranking.rest, 1.0);
    ranking.proven = view.open.empty() ||
                     (ranking.best.size() == n && n > 0 && ranking.best.back().logprob >= view.open.front().logprob);
    return ranking;
}

Ranking LabelSearch::rank_groups(const View & view, LabelGroups & groups, size_t n) {
    std::vector<LabelGroups::Open> open;
    open.reserve(view.open.size());
    std::transform(view.open.begin(), view.open.end(), std::back_inserter(open),
                   [](const Prefix & prefix) { return LabelGroups::Open{prefix.node, prefix.logprob}; });
    return groups.rank(view.found, open, n).ranking;
}

// ---- Which rows to read in the next pass ----------------------------------------------------------

// Every prefix exceeds the threshold `log_zero`, even a prefix with the probability 0. Otherwise a search that has
// found fewer labels than wanted would never end.
bool LabelSearch::exceeds(const Prefix & prefix, double threshold) {
    return prefix.logprob > threshold || threshold == log_zero;
}

// Returns whether several rows can be read in one pass.
bool LabelSearch::has_trees() const {
    return options_.strategy != Strategy::token_by_token && sequence_.decoder().tree_limits().lanes > 0;
}

// Returns the nodes whose rows to read in the next pass. They are below prefixes that are more probable than
// `threshold`; at least one such prefix is open. `n` labels are wanted.
std::vector<TokenTrie::Node> LabelSearch::next_reads(const View & view, double threshold, size_t n) const {
    const PassCost cost = sequence_.pass_cost();
    const Prefix & first = view.open.front();
    std::vector<Node> nodes;
    if (has_trees() && is_subtree_cheaper(first, cost)) {
        add_all(first.node, nodes);
    } else {
        add_chain(first.node, nodes);
    }
    const size_t n_worth_it = has_trees() ? count_worth_it(view, threshold, n, cost) : 1;
    for (size_t i = 1; i < n_worth_it; ++i) {
        const size_t n_before = nodes.size();
        add_chain(view.open[i].node, nodes);
        if (!is_one_pass(nodes)) {
            nodes.resize(n_before);
            break;
        }
    }
    return nodes;
}

std::vector<TokenTrie::Node> LabelSearch::all_below(const View & view, double threshold) const {
    std::vector<Node> nodes;
    for (const Prefix & prefix : view.open) {
        if (exceeds(prefix, threshold)) {
            add_all(prefix.node, nodes);
        }
    }
    return nodes;
}

// Returns whether reading everything below the prefixes above `threshold` takes less time than searching on. The more
// even the probabilities are, the more rows a search needs. In the worst case it reads all rows, in more passes.
bool LabelSearch::is_everything_cheaper(const View & view, double threshold) const {
    if (options_.strategy == Strategy::token_by_token) {
        return true;  // the reference implementation reads all rows
    }
    if (!has_trees() || rows_.empty() || place_.rule == LabelRule::joint) {
        return false;
    }
    const PassCost cost = sequence_.pass_cost();
    const TreeLimits limits = sequence_.decoder().tree_limits();
    double tokens = 0.0, rows = 0.0, lanes = 0.0;
    for (const Prefix & prefix : view.open) {
        if (exceeds(prefix, threshold)) {
            const TokenTrie::Undecided & below = trie().undecided_below(prefix.node);
            tokens += static_cast<double>(prefix.n_tokens) + below.tokens;
            rows += 1.0 + below.branches;
            lanes += std::max(1u, below.lanes);
        }
    }
    const double n_passes = std::ceil(std::max({tokens / limits.tokens, rows / limits.rows, lanes / limits.lanes}));
    const double everything = n_passes * cost.pass + cost.of_parts(tokens, rows, lanes);

    // Perfectly uneven probabilities need one row at each depth, perfectly even ones need all rows.
    const double depth = 1.0 + trie().undecided_below(view.open.front().node).passes;
    const double n_reads = std::min(rows, depth * std::pow(rows / depth, view.evenness));
    const double n_rounds = std::max(depth, std::ceil(n_reads / limits.lanes));
    const double search = n_rounds * cost.pass + cost.of_parts(n_reads * tokens / rows, n_reads, n_reads);
    return everything <= search;
}

// Returns whether one pass with all rows below the prefix takes less time than one pass for each step of a path.
bool LabelSearch::is_subtree_cheaper(const Prefix & prefix, const PassCost & cost) const {
    const TokenTrie::Undecided & below = trie().undecided_below(prefix.node);
    return place_.rule == LabelRule::legal && is_one_tree(below, sequence_.decoder().tree_limits()) &&
           is_tree_cheaper(below, prefix.n_tokens, cost);
}

// Returns how many of the most probable prefixes to read in the next pass: those that the search will probably need,
// and others as long as they hardly make the pass longer.
size_t LabelSearch::count_worth_it(const View & view, double threshold, size_t n, const PassCost & cost) const {
    const Prefix & first = view.open.front();
    const double depth = 1.0 + trie().undecided_below(first.node).passes;
    // The most probable label below the first prefix, if the rows below it are like the rows so far.
    const double expected = first.logprob + depth * view.highest - std::log(static_cast<double>(n));
    double spare = cost.pass / 2.0;
    size_t count = 1;
    for (; count < view.open.size() && exceeds(view.open[count], threshold); ++count) {
        const Prefix & prefix = view.open[count];
        if (prefix.logprob < expected) {
            spare -= cost.of_parts(static_cast<double>(prefix.n_tokens), 1, 1);
            if (spare < 0.0) {
                break;
            }
        }
    }
    return count;
}

// Adds all nodes from `node` downwards whose rows a complete list of probabilities needs.
void LabelSearch::add_all(Node node, std::vector<Node> & nodes) const {
    std::vector<Node> to_visit{node};
    while (!to_visit.empty()) {
        const Node at = to_visit.back();
        to_visit.pop_back();
        if (needs_row(at) && rows_.count(at) == 0) {
            nodes.push_back(at);
        }
        for (uint32_t i = 0; i < trie().children(at).size; ++i) {
            to_visit.push_back(trie().first_child(at) + i);
        }
    }
}

// Adds a node, and the nodes after it as long as each is an only child that needs a row. They all lie on one path, so
// one more lane reads them all.
void LabelSearch::add_chain(Node node, std::vector<Node> & nodes) const {
    nodes.push_back(node);
    while (trie().children(node).size == 1 && needs_row(trie().first_child(node))) {
        node = trie().first_child(node);
        nodes.push_back(node);
    }
}

bool LabelSearch::is_one_pass(const std::vector<Node> & nodes) const {
    return fit_one_tree(paths_to(nodes).paths, sequence_.decoder().tree_limits());
}

// ---- Reading ----------------------------------------------------------------------------------------

// Returns the tokens after the prompt that lead to each node.
NumberedPaths LabelSearch::paths_to(const std::vector<Node> & nodes) const {
    const TokenSpan common{place_.after.data(), static_cast<uint32_t>(place_.after.size())};
    const size_t n_written = trie().path(place_.from).size();
    std::vector<std::pair<TokenPath, size_t>> paths;
    for (const Node node : nodes) {
        paths.emplace_back(TokenPath(common, trie().path(node)).behind(n_written), node);
    }
    return NumberedPaths(std::move(paths));
}

void LabelSearch::read(const std::vector<Node> & nodes) {
    PathReader(sequence_, options_)
        .read(
            paths_to(nodes), [&](size_t node) { return needs_whole(static_cast<Node>(node)); },
            [&](size_t node, const LogitsRow & row) { keep(static_cast<Node>(node), row); });
}

void LabelSearch::keep(Node node, const LogitsRow & logits) {
    const TokenSpan children = trie().children(node);
    std::vector<float> of_children(children.size);
    logits.gather(children, of_children.data());
    const auto n_vocab = static_cast<size_t>(sequence_.decoder().model().n_vocab());
    const bool needs_all = needs_vocabulary(trie(), node) || place_.rule == LabelRule::joint;
    const double all = needs_all ? finite_total(log_sum_exp(logits.whole(), n_vocab)) : 0.0;
    const BranchTotal total = place_.rule == LabelRule::joint
                                  ? BranchTotal{all, log_zero}
                                  : total_of_branch(trie(), node, {of_children.data(), all});
    Row row;
    row.children.reserve(children.size);
    std::transform(of_children.begin(), of_children.end(), std::back_inserter(row.children),
                   [&](float logit) { return logit - total.log_total; });
    row.ending = total.ending;
    std::vector<double> parts = row.children;
    parts.push_back(row.ending);
    row.highest = *std::max_element(parts.begin(), parts.end());
    const double sum =
        std::accumulate(parts.begin(), parts.end(), 0.0, [](double s, double p) { return s + std::exp(p); });
    double entropy = 0.0;
    size_t n_parts = 0;
    for (const double part : parts) {
        if (part != log_zero) {
            const double share = std::exp(part) / sum;
            entropy -= share > 0.0 ? share * std::log(share) : 0.0;
            ++n_parts;
        }
    }
    row.evenness = n_parts > 1 ? std::min(1.0, entropy / std::log(static_cast<double>(n_parts))) : 0.0;
    rows_[node] = std::move(row);
}

}  // namespace eliza
