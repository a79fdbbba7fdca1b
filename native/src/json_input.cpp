#include "json_input.h"

#include "error.h"

namespace eliza {

Json parse_json(std::string_view text, const char * what) {
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const Json::parse_error & error) {
        throw invalid_argument(std::string(what) + " is not JSON: byte " + std::to_string(error.byte) + " of " +
                               std::to_string(text.size()));
    }
}

const Json * optional_member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept,
                             const char * kind, const std::string & path) {
    if (!object.is_object()) {
        throw invalid_argument((path.empty() ? "payload" : path) + ": expected an object, found " + object.type_name());
    }
    const auto found = object.find(key);
    if (found == object.end()) {
        return nullptr;
    }
    if (!((*found).*is_kind)()) {
        throw invalid_argument((path.empty() ? "" : path + ".") + key + ": expected " + kind + ", found " +
                               kind_of(*found));
    }
    return &*found;
}

const Json & member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept, const char * kind,
                    const std::string & path) {
    const Json * found = optional_member(object, key, is_kind, kind, path);
    if (found == nullptr) {
        throw invalid_argument((path.empty() ? "" : path + ".") + key + ": missing");
    }
    return *found;
}

}  // namespace eliza
