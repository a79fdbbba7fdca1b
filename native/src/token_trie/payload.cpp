#include "token_trie/payload.h"

#include "error.h"
#include "json_input.h"

namespace eliza {
namespace {

Token parse_token(const Json & value, int32_t n_vocab, const std::string & path) {
    if (!value.is_number_integer()) {
        throw invalid_argument(path + ": expected a token id, found " + kind_of(value));
    }
    int64_t id = 0;
    if (!read_int(value, 0, n_vocab > 0 ? n_vocab - 1 : INT32_MAX, id)) {
        throw invalid_argument(path + ": " + value.dump() + " is outside the vocabulary" +
                               (n_vocab > 0 ? " of " + std::to_string(n_vocab) : ""));
    }
    return static_cast<Token>(id);
}

Leaf parse_leaf(const Json & value, int32_t n_vocab, const std::string & path) {
    Leaf leaf;
    leaf.name = member(value, "name", &Json::is_string, "a string", path).text();
    const Json & tokens = member(value, "tokens", &Json::is_array, "an array", path);
    if (tokens.empty()) {
        throw invalid_argument(path + ".tokens: leaf \"" + leaf.name + "\" has no tokens");
    }
    leaf.tokens.reserve(tokens.size());
    for (const Json & token : tokens) {
        leaf.tokens.push_back(parse_token(token, n_vocab, at(path + ".tokens", leaf.tokens.size())));
    }
    return leaf;
}

}  // namespace

Payload parse_payload(std::string_view json, int32_t n_vocab) {
    const Json root = parse_json(json, "payload");
    Payload payload;
    payload.model_id = member(root, "modelId", &Json::is_string, "a string", "").text();
    const Json & descriptors = member(root, "descriptors", &Json::is_array, "an array", "");
    for (size_t d = 0; d < descriptors.size(); ++d) {
        const std::string path = at("descriptors", d);
        const Json & leaves = member(descriptors[d], "leaves", &Json::is_array, "an array", path);
        for (size_t l = 0; l < leaves.size(); ++l) {
            payload.leaves.push_back(parse_leaf(leaves[l], n_vocab, at(path + ".leaves", l)));
        }
    }
    if (payload.leaves.empty()) {
        throw invalid_argument("the payload has no leaves (descriptors: " + std::to_string(descriptors.size()) + ")");
    }
    return payload;
}

}  // namespace eliza
