#include "json_input.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>

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

// Builds the tree from the events of nlohmann's parser, and keeps the position and kind of an error.
class TreeBuilder {
public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    bool null() { return put(Json()); }
    bool boolean(bool value) { return put(Json(value)); }
    bool number_integer(number_integer_t value) { return put(Json(value)); }
    bool number_unsigned(number_unsigned_t value) { return put(Json(value)); }
    bool number_float(number_float_t value, const string_t &) { return put(Json(value)); }
    bool string(string_t & value) { return put(Json(std::move(value))); }
    bool binary(binary_t &) { return false; }
    bool start_array(size_t) { return open(Json::array()); }
    bool start_object(size_t) { return open(Json::object()); }
    bool end_array() { return close(); }
    bool end_object() { return close(); }
    bool key(string_t & name) {
        name_ = std::move(name);
        return true;
    }
    bool parse_error(size_t byte, const std::string &, const nlohmann::json::exception & error) {
        constexpr int number_overflow = 406;
        error_byte = byte;
        number_is_too_large = error.id == number_overflow;
        return false;
    }

    Json root;
    size_t error_byte = 0;
    bool number_is_too_large = false;

private:
    Json & place(Json value) {
        if (open_.empty()) {
            return root = std::move(value);
        }
        Json & parent = *open_.back();
        return parent.is_array() ? parent.push_back(std::move(value)) : parent.add(std::move(name_), std::move(value));
    }
    bool put(Json value) {
        place(std::move(value));
        return true;
    }
    bool open(Json value) {
        open_.push_back(&place(std::move(value)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    // Elements are only added to the innermost open array or object, so these pointers stay valid.
    std::vector<Json *> open_;
    std::string name_;
};

}  // namespace

Json parse_json(std::string_view text, const char * what) {
    check_depth(text, what);
    TreeBuilder builder;
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
        return std::move(builder.root);
    }
    if (builder.number_is_too_large) {
        throw invalid_argument(std::string(what) + " contains a number that is too large");
    }
    throw invalid_argument(std::string(what) + " is not JSON: byte " + std::to_string(builder.error_byte) + " of " +
                           std::to_string(text.size()));
}

Json parse_array(std::string_view text, const char * what, const char * elements) {
    Json json = parse_json(text, what);
    if (!json.is_array()) {
        throw invalid_argument(std::string(what) + ": expected an array of " + elements + ", found " + kind_of(json));
    }
    return json;
}

std::vector<std::string> parse_strings(std::string_view text, const char * what) {
    return strings_of(parse_array(text, what, "strings"), what);
}

std::vector<std::string> strings_of(const Json & array, const char * what) {
    std::vector<std::string> strings;
    strings.reserve(array.size());
    for (const Json & value : array) {
        if (!value.is_string()) {
            throw invalid_argument(at(what, strings.size()) + ": expected a string, found " + kind_of(value));
        }
        strings.push_back(value.text());
    }
    return strings;
}

void check_distinct(const std::vector<std::string> & texts, const char * what) {
    if (texts.empty()) {
        throw invalid_argument(std::string(what) + ": expected at least one string, got none");
    }
    std::unordered_map<std::string_view, size_t> seen;
    seen.reserve(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].empty()) {
            throw invalid_argument(at(what, i) + " is empty");
        }
        if (const auto [first, is_new] = seen.emplace(texts[i], i); !is_new) {
            throw invalid_argument(at(what, i) + " is the same as " + at(what, first->second));
        }
    }
}

bool read_int(const Json & value, int64_t least, int64_t most, int64_t & out) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.number<uint64_t>() > INT64_MAX)) {
        return false;
    }
    out = value.number<int64_t>();
    return out >= least && out <= most;
}

const Json * optional_member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept,
                             const char * kind, const std::string & path) {
    if (!object.is_object()) {
        throw invalid_argument((path.empty() ? "payload" : path) + ": expected an object, found " + object.type_name());
    }
    const Json * found = object.find(key);
    if (found == nullptr) {
        return nullptr;
    }
    if (!(found->*is_kind)()) {
        throw invalid_argument((path.empty() ? "" : path + ".") + key + ": expected " + kind + ", found " +
                               kind_of(*found));
    }
    return found;
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
