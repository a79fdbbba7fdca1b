#include "json_input.h"

#include <cstdint>

#include "error.h"

namespace eliza {

namespace {

constexpr int max_depth = 64;

void check_depth(std::string_view text, const char * what) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        switch (text[i]) {
            case '"': in_string = !in_string; break;
            case '\\': i += in_string ? 1 : 0; break;
            case '[':
            case '{': depth += in_string ? 0 : 1; break;
            case ']':
            case '}': depth -= in_string ? 0 : 1; break;
            default: break;
        }
        if (depth > max_depth) {
            throw invalid_argument(std::string(what) + " is nested deeper than " + std::to_string(max_depth) +
                                   " levels, at byte " + std::to_string(i));
        }
    }
}

}  // namespace

Json parse_json(std::string_view text, const char * what) {
    check_depth(text, what);
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const Json::parse_error & error) {
        throw invalid_argument(std::string(what) + " is not JSON: byte " + std::to_string(error.byte) + " of " +
                               std::to_string(text.size()));
    } catch (const Json::exception &) {
        throw invalid_argument(std::string(what) + " holds a number that is too large");
    }
}

Json parse_array(std::string_view text, const char * what, const char * elements) {
    Json json = parse_json(text, what);
    if (!json.is_array()) {
        throw invalid_argument(std::string(what) + ": expected an array of " + elements + ", found " + kind_of(json));
    }
    return json;
}

std::vector<std::string> parse_strings(std::string_view text, const char * what) {
    const Json json = parse_array(text, what, "strings");
    std::vector<std::string> strings;
    strings.reserve(json.size());
    for (const Json & value : json) {
        if (!value.is_string()) {
            throw invalid_argument(at(what, strings.size()) + ": expected a string, found " + kind_of(value));
        }
        strings.push_back(value.get<std::string>());
    }
    return strings;
}

bool read_int(const Json & value, int64_t least, int64_t most, int64_t & out) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) {
        return false;
    }
    out = value.get<int64_t>();
    return out >= least && out <= most;
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
