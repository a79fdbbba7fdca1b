#include "engine/choice/leaf_scores.h"

#include <limits>

#include "sampling/token_selector.h"

namespace eliza {
namespace {

// Returns the score of each leaf's node.
std::vector<double> of_leaves(const TokenTrie & trie, const std::vector<double> & of_nodes) {
    std::vector<double> scores;
    scores.reserve(trie.n_leaves());
    for (int32_t leaf = 0; leaf < static_cast<int32_t>(trie.n_leaves()); ++leaf) {
        scores.push_back(of_nodes[trie.leaf_node(leaf)]);
    }
    return scores;
}

}  // namespace

bool needs_vocabulary(const TokenTrie & trie, TokenTrie::Node node) {
    return trie.leaf(node) != TokenTrie::none && trie.is_branch(node);
}

BranchTotal total_of_branch(const TokenTrie & trie, TokenTrie::Node node, const NodeLogits & logits) {
    const double of_children = log_sum_exp(logits.children, trie.children(node).size);
    if (needs_vocabulary(trie, node)) {
        return {logits.log_total, log_of_rest(of_children - finite_total(logits.log_total))};
    }
    return {finite_total(of_children), -std::numeric_limits<double>::infinity()};
}

std::vector<double> legal_logprobs(const TokenTrie & trie, const LogitsAt & at) {
    std::vector<double> reaching(trie.n_nodes(), 0.0);  // log-probability of reaching each node
    std::vector<double> ending(trie.n_nodes(), 0.0);    // log-probability of ending at a node after reaching it
    // Parents have lower numbers than their children.
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        const TokenSpan children = trie.children(node);
        for (uint32_t i = 0; i < children.size; ++i) {
            reaching[trie.first_child(node) + i] = reaching[node];
        }
        if (!trie.is_branch(node)) {
            continue;
        }
        const NodeLogits logits = at(node);
        const BranchTotal total = total_of_branch(trie, node, logits);
        if (needs_vocabulary(trie, node)) {
            ending[node] = total.ending;
        }
        for (uint32_t i = 0; i < children.size; ++i) {
            reaching[trie.first_child(node) + i] += logits.children[i] - total.log_total;
        }
    }
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        reaching[node] += ending[node];
    }
    return of_leaves(trie, reaching);
}

std::vector<double> joint_logprobs(const TokenTrie & trie, const LogitsAt & at) {
    std::vector<double> reaching(trie.n_nodes(), 0.0);
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        const TokenSpan children = trie.children(node);
        if (children.empty()) {
            continue;
        }
        const NodeLogits logits = at(node);
        for (uint32_t i = 0; i < children.size; ++i) {
            reaching[trie.first_child(node) + i] = reaching[node] + logits.children[i] - logits.log_total;
        }
    }
    return of_leaves(trie, reaching);
}

}  // namespace eliza
