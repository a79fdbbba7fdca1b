// From the logits at a trie's nodes to its leaves' probabilities.
#pragma once

#include <functional>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

// What is known of a node: the logits of its children, and the logarithm of the sum of the exponentials of the whole
// vocabulary's where that was asked for.
struct NodeLogits {
    const float * children;
    double log_total;
};
using LogitsAt = std::function<NodeLogits(TokenTrie::Node)>;

// True where a choice between ending at a node and going on needs the whole vocabulary's logits.
bool needs_vocabulary(const TokenTrie & trie, TokenTrie::Node node);

// The logarithm of every leaf's probability among the leaves, in payload order: at each branch the softmax over the
// children, and where a leaf ends there, all that is no child ends it. `at` is asked of branches only.
std::vector<double> legal_logprobs(const TokenTrie & trie, const LogitsAt & at);

// The logarithm of every leaf's probability as a text: at each of its tokens the softmax over the whole vocabulary.
// `at` is asked of all nodes with children.
std::vector<double> joint_logprobs(const TokenTrie & trie, const LogitsAt & at);

}  // namespace eliza
