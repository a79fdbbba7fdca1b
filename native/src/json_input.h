// Reading JSON that callers hand in, with errors that name the place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace eliza {

// Throws Error that says at which byte `what` stops being JSON, or that it is nested too deep to be handled
// by functions that follow it recursively.
Json parse_json(std::string_view text, const char * what);

// An array, and nothing else. Throws Error that calls what it should have held `elements`.
Json parse_array(std::string_view text, const char * what, const char * elements);

// An array of strings, and nothing else. Throws Error that names the place in `what`.
std::vector<std::string> parse_strings(std::string_view text, const char * what);

// `object[key]`, which must be there and of the wanted kind. `path` names the object in errors; it is
// empty for the outermost one.
const Json & member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept, const char * kind,
                    const std::string & path);

// The same where it may be missing: then nullptr.
const Json * optional_member(const Json & object, const char * key, bool (Json::*is_kind)() const noexcept,
                             const char * kind, const std::string & path);

// A whole number from `least` to `most`, however it is stored; false where it is none.
bool read_int(const Json & value, int64_t least, int64_t most, int64_t & out);

inline std::string at(const std::string & path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

// What a value is called in errors: "fraction" rather than "number" for what is one, but no whole one.
// Not the value itself: it may be megabytes, or nested deeper than printing it can follow.
inline std::string kind_of(const Json & value) { return value.is_number_float() ? "fraction" : value.type_name(); }

}  // namespace eliza
