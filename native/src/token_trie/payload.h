// The JSON format of labels as tokens: elizaOS's TokenTreePayload.
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

// Parses a payload. Throws an Error with the path of the invalid part, such as "descriptors[0].leaves[3].tokens[1]".
// Token ids are checked against n_vocab unless n_vocab is 0.
Payload parse_payload(std::string_view json, int32_t n_vocab);

}  // namespace eliza
