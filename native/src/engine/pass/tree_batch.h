// A tree of tokens that is decoded in one pass.
//
// All paths of the tree share the prompt. Each path from the prompt to a leaf of the tree is a lane, which is a
// separate sequence of the KV cache. A node belongs to the lanes of all paths through it.
#pragma once

#include <cstdint>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

struct TreeBatch {
    struct Node {
        TokenTrie::Node node;
        Token token;
        int32_t parent;  // index in `nodes`, lower than this node's; -1 = the prompt
        int32_t depth;   // 0 = directly after the prompt
        bool wants_logits;
        int32_t lanes_begin, lanes_end;
    };
    std::vector<Node> nodes;  // depth first
    int32_t n_lanes = 0;
    int32_t n_rows = 0;  // number of nodes that want logits
};

// The maximum number of tokens, rows of logits and lanes in one tree.
struct TreeLimits {
    int32_t tokens, rows, lanes;
};

}  // namespace eliza
