#include "engine/choice/label_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace eliza {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();  // log(0)

// Returns log(exp(a) + exp(b)).
double log_add(double a, double b) {
    const double larger = std::max(a, b);
    return larger == nothing ? nothing : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

}  // namespace

LabelGroups::LabelGroups(const TokenTrie & trie, const std::vector<int32_t> & of_label)
    : trie_(trie), of_label_(of_label) {
    constexpr int32_t unknown = -2;
    if (of_label.empty()) {
        return;
    }
    n_groups_ = static_cast<size_t>(*std::max_element(of_label.begin(), of_label.end())) + 1;
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

Ranking LabelGroups::rank(const std::vector<Found> & found, const std::vector<Open> & open, size_t n) const {
    std::vector<double> known(n_groups_, nothing);
    for (const Found & each : found) {
        double & sum = known[static_cast<size_t>(each.label)];
        sum = log_add(sum, each.logprob);
    }
    std::vector<double> most = known;
    for (const Open & prefix : open) {
        for (const int32_t group : groups_below(prefix.node)) {
            double & sum = most[static_cast<size_t>(group)];
            sum = log_add(sum, prefix.logprob);
        }
    }
    std::vector<int32_t> order = of_label_;
    std::sort(order.begin(), order.end());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return known[static_cast<size_t>(a)] > known[static_cast<size_t>(b)];
    });
    Ranking ranking;
    ranking.proven = true;
    double most_of_others = nothing;
    for (size_t place = 0; place < order.size(); ++place) {
        const auto group = static_cast<size_t>(order[place]);
        if (place < n) {
            ranking.best.push_back({order[place], known[group], most[group]});
            ranking.proven = ranking.proven && known[group] == most[group];
        } else {
            most_of_others = std::max(most_of_others, most[group]);
            ranking.rest += std::exp(known[group]);
        }
    }
    for (const Open & prefix : open) {
        ranking.rest += std::exp(prefix.logprob);
    }
    ranking.rest = std::min(ranking.rest, 1.0);
    ranking.proven = ranking.proven && (ranking.best.empty() || ranking.best.back().logprob >= most_of_others);
    return ranking;
}

std::vector<int32_t> LabelGroups::groups_below(TokenTrie::Node node) const {
    std::vector<int32_t> groups;
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
