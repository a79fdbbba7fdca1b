// The wire format of choices: elizaOS's TokenTreePayload as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

struct Payload {
    std::string model_id;
    std::vector<Leaf> leaves;  // of all descriptors, in their order
};

// Reads a payload. Every error names the descriptor and leaf it is about, as a path such as
// "descriptors[0].leaves[3].tokens[1]". Token ids are checked against n_vocab unless that is 0.
Payload parse_payload(std::string_view json, int32_t n_vocab);

}  // namespace eliza
