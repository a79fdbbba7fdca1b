// A tree of tokens that is decoded in one pass.
//
// It shares the prompt. Where the tree forks, the sequence forks: every path to a deepest node is a lane, a
// sequence of its own, and a node belongs to all lanes that run through it.
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
    int32_t n_rows = 0;  // nodes that want logits
};

// What one tree may hold.
struct TreeLimits {
    int32_t tokens, rows, lanes;
};

}  // namespace eliza
