// The undecided part of a trie, cut into trees of which each is decoded in one pass.
#pragma once

#include <vector>

#include "engine/pass/tree_batch.h"
#include "token_trie/token_trie.h"

namespace eliza {

// The trees that give the logits of every branch strictly below `from`. Empty when there is none, and when a
// single path is longer than a tree may be.
std::vector<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits);

}  // namespace eliza
