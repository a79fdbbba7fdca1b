#include "engine/choice/label_groups.h"

#include <algorithm>
#include <cmath>

#include "sampling/token_selector.h"

namespace eliza {
LabelGroups::LabelGroups(const TokenTrie & trie, const std::vector<int32_t> & of_label)
    : trie_(trie), of_label_(of_label) {
    constexpr int32_t unknown = -2;
    if (of_label.empty()) {
        return;
    }
    n_groups_ = static_cast<size_t>(*std::max_element(of_label.begin(), of_label.end())) + 1;
    in_use_ = of_label;
    std::sort(in_use_.begin(), in_use_.end());
    in_use_.erase(std::unique(in_use_.begin(), in_use_.end()), in_use_.end());
    below_.assign(trie.n_nodes(), unknown);
    // Children have higher numbers than their parents.
    for (auto node = static_cast<TokenTrie::Node>(trie.n_nodes()); node-- > 0;) {
        int32_t & group = below_[node];
        const auto add = [&](int32_t other) { group = group == unknown || group == other ? other : mixed; };
        if (trie.leaf(node) != TokenTrie::none) {
            add(this->of_label(trie.leaf(node)));
        }
        for (uint32_t i = 0; i < trie.children(node).size; ++i) {
            add(below_[trie.first_child(node) + i]);
        }
    }
}

LabelGroups::Ranked LabelGroups::rank(const std::vector<Found> & found, const std::vector<Open> & open, size_t n,
                                      double tolerance) {
    std::vector<double> known(n_groups_, log_zero);
    const auto add = [](std::vector<double> & sums, int32_t group, double logprob) {
        double & sum = sums[static_cast<size_t>(group)];
        sum = log_add(sum, logprob);
    };
    for (const Found & each : found) {
        add(known, each.label, each.logprob);
    }
    std::vector<double> most = known;
    for (const Open & prefix : open) {
        for (const int32_t group : groups_below(prefix.node)) {
            add(most, group, prefix.logprob);
        }
    }
    std::vector<int32_t> order = in_use_;
    const auto end_of_best = order.begin() + static_cast<std::ptrdiff_t>(std::min(n, order.size()));
    std::partial_sort(order.begin(), end_of_best, order.end(), [&](int32_t a, int32_t b) {
        const double of_a = known[static_cast<size_t>(a)], of_b = known[static_cast<size_t>(b)];
        return of_a > of_b || (of_a == of_b && a < b);
    });

    Ranked ranked;
    Ranking & ranking = ranked.ranking;
    std::vector<bool> is_undecided(n_groups_, false);
    double known_before = std::numeric_limits<double>::infinity();  // of the last of the n best so far
    for (size_t place = 0; place < order.size(); ++place) {
        const auto group = static_cast<size_t>(order[place]);
        is_undecided[group] = most[group] > known_before;
        if (place < n) {
            ranking.best.push_back({order[place], known[group], most[group]});
            const bool is_exact = most[group] == known[group] ||
                                  (tolerance > 0.0 && std::exp(most[group]) - std::exp(known[group]) <= tolerance);
            is_undecided[group] = is_undecided[group] || !is_exact;
            known_before = known[group];
        } else {
            ranking.rest += std::exp(known[group]);
        }
        ranking.proven = (place == 0 || ranking.proven) && !is_undecided[group];
    }
    for (size_t i = 0; i < open.size(); ++i) {
        ranking.rest += std::exp(open[i].logprob);
        const std::vector<int32_t> & below = groups_below(open[i].node);
        ranked.decides.push_back(std::any_of(below.begin(), below.end(),
                                             [&](int32_t group) { return is_undecided[static_cast<size_t>(group)]; }));
    }
    ranking.rest = std::min(ranking.rest, 1.0);
    return ranked;
}

const std::vector<int32_t> & LabelGroups::groups_below(TokenTrie::Node node) {
    std::vector<int32_t> & groups = groups_below_[node];
    if (!groups.empty()) {
        return groups;
    }
    std::vector<TokenTrie::Node> to_visit{node};
    while (!to_visit.empty()) {
        const TokenTrie::Node at = to_visit.back();
        to_visit.pop_back();
        if (below_[at] != mixed) {
            groups.push_back(below_[at]);
            continue;
        }
        if (trie_.leaf(at) != TokenTrie::none) {
            groups.push_back(of_label(trie_.leaf(at)));
        }
        for (uint32_t i = 0; i < trie_.children(at).size; ++i) {
            to_visit.push_back(trie_.first_child(at) + i);
        }
    }
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
}

}  // namespace eliza
