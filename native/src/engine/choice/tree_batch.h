// The undecided part of a trie, cut into batches of which each is decoded in one pass.
//
// A batch shares the prompt. Where the trie forks, the sequence forks: every path to a deepest node
// is a lane, a sequence of its own, and a node belongs to all lanes that run through it.
#pragma once

#include <cstdint>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

struct TreeBatch {
    struct Node {
        TokenTrie::Node node;
        Token token;
        int32_t parent;  // an earlier place in `nodes`, or -1: behind the prompt
        int32_t depth;   // 0 = right behind the prompt
        bool wants_logits;
        int32_t lanes_begin, lanes_end;
    };
    std::vector<Node> nodes;  // depth first
    int32_t n_lanes = 0;
};

struct TreeLimits {
    int32_t tokens, rows, lanes;
};

// The batches that give the logits of every branch strictly below `from`. Empty when there is none,
// and when a single path is longer than a batch may be.
std::vector<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits);

}  // namespace eliza
