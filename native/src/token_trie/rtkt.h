// The binary wire format of choices: elizaOS's RTKT tree. All numbers are little-endian.
//
//     u32  magic, the letters RTKT
//     u32  version, 1
//     u32  length of the path, and its bytes
//     u32  number of nodes; then each, depth first, the root first:
//         i32  token (of the root: -1)
//         u8   1 where a leaf ends, else 0
//         u32  number of children; then of each, by ascending token:
//             u32  its place among the nodes
//
// It names neither a model nor its leaves: they are called by their place, "0", "1", and so on.
#pragma once

#include <string_view>

#include "token_trie/payload.h"

namespace eliza {

bool is_rtkt(std::string_view bytes);

// Throws Error that names the byte and the node. Token ids are checked against n_vocab unless that
// is 0.
Payload parse_rtkt(std::string_view bytes, int32_t n_vocab);

}  // namespace eliza
