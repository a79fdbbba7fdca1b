#include "token_trie/payload.h"

#include <nlohmann/json.hpp>

#include "error.h"

namespace eliza {
namespace {

using Json = nlohmann::json;

std::string at(const std::string & path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

// `object[key]`, which must be there and of the wanted kind.
const Json & member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept, const char * kind,
                    const std::string & path) {
    if (!object.is_object()) {
        throw invalid_argument(path + ": expected an object, found " + object.type_name());
    }
    const auto found = object.find(key);
    const std::string name = path == "payload" ? key : path + "." + key;
    if (found == object.end()) {
        throw invalid_argument(name + ": missing");
    }
    if (!((*found).*is_kind)()) {
        throw invalid_argument(name + ": expected " + kind + ", found " + found->type_name());
    }
    return *found;
}

// "fraction" rather than "number" for what is one, but not a whole one.
std::string kind_of(const Json & value) { return value.is_number_float() ? "fraction" : value.type_name(); }

Token parse_token(const Json & value, int32_t n_vocab, const std::string & path) {
    if (!value.is_number_integer()) {
        // Not the value itself: it may be megabytes, or nested deeper than printing it can follow.
        throw invalid_argument(path + ": expected a token id, found " + kind_of(value));
    }
    // An unsigned value beyond int64 would wrap, so it is judged as what it is.
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX;
    const int64_t id = huge ? INT64_MAX : value.get<int64_t>();
    if (id < 0 || id > INT32_MAX || (n_vocab > 0 && id >= n_vocab)) {
        throw invalid_argument(path + ": " + value.dump() + " is outside the vocabulary" +
                               (n_vocab > 0 ? " of " + std::to_string(n_vocab) : ""));
    }
    return static_cast<Token>(id);
}

Leaf parse_leaf(const Json & value, int32_t n_vocab, const std::string & path) {
    Leaf leaf;
    leaf.name = member(value, "name", &Json::is_string, "a string", path).get<std::string>();
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

Json parse_json(std::string_view text) {
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const Json::parse_error & error) {
        throw invalid_argument("payload is not JSON: byte " + std::to_string(error.byte) + " of " +
                               std::to_string(text.size()));
    }
}

}  // namespace

Payload parse_payload(std::string_view json, int32_t n_vocab) {
    const Json root = parse_json(json);
    Payload payload;
    payload.model_id = member(root, "modelId", &Json::is_string, "a string", "payload").get<std::string>();
    const Json & descriptors = member(root, "descriptors", &Json::is_array, "an array", "payload");
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
