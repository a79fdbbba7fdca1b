// Reading JSON that callers pass in, with errors that name the position.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace eliza {

// Parses JSON. Throws an Error with the byte at which `what` is malformed, or if it is nested more than 64 levels deep,
// which protects functions that process it recursively.
Json parse_json(std::string_view text, const char * what);

// Parses JSON that must be an array. Throws an Error that describes its expected elements as `elements`.
Json parse_array(std::string_view text, const char * what, const char * elements);

// Parses JSON that must be an array of strings. Throws an Error that names the element in `what`.
std::vector<std::string> parse_strings(std::string_view text, const char * what);
std::vector<std::string> strings_of(const Json & array, const char * what);

// Throws an Error unless the texts are distinct and not empty, and there is at least one.
void check_distinct(const std::vector<std::string> & texts, const char * what);

// Returns `object[key]`, which must exist and be of the given kind. `path` names the object in errors; it is empty for
// the outermost object.
const Json & member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept, const char * kind,
                    const std::string & path);

// The same, but returns nullptr if the member is missing.
const Json * optional_member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept,
                             const char * kind, const std::string & path);

// Reads an integer from `least` to `most`, whether it is stored signed or unsigned. Returns false for any other value.
bool read_int(const Json & value, int64_t least, int64_t most, int64_t & out);

inline std::string at(const std::string & path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

// Returns the name of a value's type for errors; numbers that are not integers are called "fraction". Errors never
// contain the value itself, because it may be megabytes long.
inline std::string kind_of(const Json & value) { return value.is_number_float() ? "fraction" : value.type_name(); }

}  // namespace eliza
