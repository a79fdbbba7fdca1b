// Finds the most probable labels without computing the probability of every label.
//
// The probability of a label is a product of conditional probabilities, one for each token. So no label is more
// probable than a prefix of it. The search therefore reads the logits after the most probable prefixes first. Once the
// n-th most probable label found is at least as probable as every prefix whose logits are unread, the n labels are
// proven to be the most probable ones. docs/explanation/ranking.md shows an example.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/label_groups.h"
#include "engine/choice/tree_plan.h"
#include "engine/pass/sequence.h"
#include "token_trie/trie_cache.h"

namespace eliza {

// Which probabilities are compared: legal_logprobs() or joint_logprobs() of leaf_scores.h.
enum class LabelRule { legal, joint };

class LabelSearch {
public:
    // The labels, and where they begin: after the sequence's tokens and then the tokens of `after`. If the sequence
    // already ends with the tokens that all labels begin with, `from` is the node after these tokens.
    struct Place {
        std::vector<llama_token> after;
        std::shared_ptr<const CachedTrie> labels;
        LabelRule rule;
        TokenTrie::Node from = TokenTrie::root;
    };
    LabelSearch(Sequence & sequence, const Options & options, Place place);

    // Returns whether the rows read so far also serve this search: the prompt, labels and rule are the same.
    bool is_for(const Place & place) const;

    // Keeps the rows that it reads, so that later calls need fewer passes. The sequence is unchanged afterwards. Throws
    // an Error.
    Ranking rank(const RankWish & wish);

private:
    using Node = TokenTrie::Node;

    // The conditional log-probabilities at a node, and how evenly they are distributed.
    struct Row {
        std::vector<double> children;
        double ending = 0.0;    // the label ends here; only if needs_vocabulary()
        double evenness = 0.0;  // entropy / its largest possible value
        double highest = 0.0;   // the largest of the log-probabilities
    };
    struct Prefix {
        Node node;
        double logprob;
        size_t n_tokens;  // to decode after the closest prefix that was read
    };
    using Found = LabelGroups::Found;
    // What is known from the rows read so far.
    struct View {
        std::vector<Prefix> open;  // unread, most probable first
        std::vector<Found> found;
        double evenness = 1.0, highest = 0.0;  // averages over the rows, weighted by probability
    };
    const TokenTrie & trie() const { return place_.labels->trie; }
    View look(const LabelGroups & groups) const;
    static Ranking rank_labels(const View & view, size_t n);
    static Ranking rank_groups(const View & view, LabelGroups & groups, size_t n);

    static bool exceeds(const Prefix & prefix, double threshold);
    bool has_trees() const;
    std::vector<Node> next_reads(const View & view, double threshold, size_t n) const;
    std::vector<Node> all_below(const View & view, double threshold) const;
    bool is_everything_cheaper(const View & view, double threshold) const;
    bool is_subtree_cheaper(const Prefix & prefix, const PassCost & cost) const;
    size_t count_worth_it(const View & view, double threshold, size_t n, const PassCost & cost) const;
    bool is_one_pass(const std::vector<Node> & nodes) const;
    void add_all(Node node, std::vector<Node> & nodes) const;
    void add_chain(Node node, std::vector<Node> & nodes) const;

    bool needs_row(Node node) const;
    bool needs_whole(Node node) const;
    NumberedPaths paths_to(const std::vector<Node> & nodes) const;
    void read(const std::vector<Node> & nodes);
    void keep(Node node, const LogitsRow & row);

    Sequence & sequence_;
    const Options & options_;
    const Place place_;
    const std::vector<llama_token> prompt_;
    std::unordered_map<Node, Row> rows_;
};

}  // namespace eliza
