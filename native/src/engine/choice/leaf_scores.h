// Computes the probabilities of a trie's leaves from the logits at its nodes.
#pragma once

#include <functional>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

struct NodeLogits {
    const float * children;  // the logits of the node's children
    double log_total;        // log(sum(exp(logits))) over the whole vocabulary; unused if the caller does not need it
};
using LogitsAt = std::function<NodeLogits(TokenTrie::Node)>;

// Returns whether a leaf ends at this node although longer leaves continue. The decision then needs the logits of the
// whole vocabulary.
bool needs_vocabulary(const TokenTrie & trie, TokenTrie::Node node);

// How the logits of the children become log-probabilities among the leaves: subtract `log_total`.
struct BranchTotal {
    double log_total;
    double ending;  // log-probability that a leaf ends at the node; log(0) if none does
};
BranchTotal total_of_branch(const TokenTrie & trie, TokenTrie::Node node, const NodeLogits & logits);

// Returns the natural logarithm of every leaf's probability among the leaves, in payload order. At each branch, the
// probability is the softmax over the children. If a leaf also ends at the branch, the softmax is over the whole
// vocabulary, and all tokens that are not children count for that leaf. Calls `at` only for branches.
std::vector<double> legal_logprobs(const TokenTrie & trie, const LogitsAt & at);

// Returns the natural logarithm of the probability that the model generates each leaf's tokens, in payload order. At
// each token, the probability is the softmax over the whole vocabulary. Calls `at` for all nodes with children.
std::vector<double> joint_logprobs(const TokenTrie & trie, const LogitsAt & at);

}  // namespace eliza
