// A ranking of labels or of groups of labels, and what follows from the prefixes that a search has read.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

constexpr double log_zero = -std::numeric_limits<double>::infinity();  // log(0)

struct RankWish {
    size_t n = 1;
    std::optional<int64_t> max_passes{};  // if not set, as many as the proof needs
    // The group of every label, in payload order; empty = rank the labels themselves. The probability of a group is the
    // sum of its labels' probabilities. Only for LabelRule::legal.
    std::vector<int32_t> groups{};
};

struct Ranking {
    struct Entry {
        int32_t label;        // or group
        double logprob;       // exact unless prefixes that lead to it are unread; then a lower bound
        double most_logprob;  // an upper bound; equal to `logprob` if that is exact
    };
    std::vector<Entry> best;  // most probable first; equal ones in payload order
    bool proven = false;      // `best` has the most probable labels, in order and with exact probabilities
    double rest = 0.0;        // the probability of all other labels together
    int64_t passes = 0;       // forward passes of this search
    int64_t reads = 0;        // rows of logits read by this search
};

// Divides the leaves of a trie into groups. The probability of a group is the sum of its labels' probabilities.
class LabelGroups {
public:
    static constexpr int32_t mixed = -1;

    // `of_label` has the group of every leaf, in payload order. Both arguments must outlive the object.
    LabelGroups(const TokenTrie & trie, const std::vector<int32_t> & of_label);

    bool empty() const { return of_label_.empty(); }
    int32_t of_label(int32_t leaf) const { return of_label_[static_cast<size_t>(leaf)]; }

    // Returns the group of all labels at and below a node, or `mixed` if they belong to several groups.
    int32_t below(TokenTrie::Node node) const { return below_[node]; }

    struct Found {
        int32_t label;  // or group
        double logprob;
    };
    struct Open {  // an unread prefix that leads to labels of several groups
        TokenTrie::Node node;
        double logprob;
    };
    struct Ranked {
        Ranking ranking;
        std::vector<bool> decides;  // by open prefix: reading it may change the ranking
    };
    // Ranks the groups by what is known: the parts of their probabilities that were found, and the open prefixes. A
    // probability counts as exact if its bounds differ by `tolerance` or less.
    Ranked rank(const std::vector<Found> & found, const std::vector<Open> & open, size_t n, double tolerance = 0.0);

private:
    const std::vector<int32_t> & groups_below(TokenTrie::Node node);

    const TokenTrie & trie_;
    const std::vector<int32_t> & of_label_;
    std::vector<int32_t> in_use_;  // the groups, ascending
    std::vector<int32_t> below_;   // by node
    size_t n_groups_ = 0;
    std::unordered_map<TokenTrie::Node, std::vector<int32_t>> groups_below_;  // of the nodes asked for so far
};

}  // namespace eliza
