// The binary format of labels as tokens: elizaOS's RTKT tree. All numbers are little-endian.
//
//     u32  magic, the letters RTKT
//     u32  version, 1
//     u32  length of the path, and its bytes
//     u32  number of nodes; then for each node, in depth-first order, beginning with the root:
//         i32  token (-1 for the root)
//         u8   1 if a leaf ends at this node, else 0
//         u32  number of children; then for each child, in ascending order of tokens:
//             u32  index of the child among the nodes
//
// The format contains no model id and no names. The names of the leaves are their indices: "0", "1", and so on.
#pragma once

#include <string_view>

#include "token_trie/payload.h"

namespace eliza {

bool is_rtkt(std::string_view bytes);

// Parses a tree. Throws an Error that names the byte and the node. Token ids are checked against n_vocab unless n_vocab
// is 0.
Payload parse_rtkt(std::string_view bytes, int32_t n_vocab);

}  // namespace eliza
