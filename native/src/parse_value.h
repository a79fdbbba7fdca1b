// Options: their names, their allowed values, and parsers for these values, which are strings.
#pragma once

#include <algorithm>
#include <charconv>
#include <functional>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "error.h"

namespace eliza {

// Reads a number as std::from_chars does. Returns false unless the whole text is one number that fits the type.
template <typename Number>
bool read_number(const std::string & text, Number & value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

// The same for floating-point numbers, because LLVM's standard library has std::from_chars for them only from version
// 20 on. Infinities and NaN are rejected.
template <typename Number>
bool read_number_from_stream(const std::string & text, Number & value) {
    if (text.empty() || text[0] == '+' || text.find_first_not_of("0123456789+-.eE") != std::string::npos) {
        return false;
    }
    std::istringstream stream(text);
    stream.imbue(std::locale::classic());
    stream >> std::noskipws >> value;
    return !stream.fail() && stream.peek() == std::istringstream::traits_type::eof();
}

#if !defined(__cpp_lib_to_chars)
template <>
inline bool read_number(const std::string & text, float & value) {
    return read_number_from_stream(text, value);
}
template <>
inline bool read_number(const std::string & text, double & value) {
    return read_number_from_stream(text, value);
}
#endif

// Returns false and leaves `out` unchanged, unless the whole text is a number from low to high.
template <typename Number>
bool parse_number(const std::string & text, Number low, Number high, Number & out) {
    Number value{};
    if (!read_number(text, value) || !(value >= low && value <= high)) {
        return false;
    }
    out = value;
    return true;
}

// Returns false and leaves `out` unchanged, unless the text is one of the names.
template <typename Value>
bool parse_name(const std::string & text, const std::vector<std::pair<const char *, Value>> & names, Value & out) {
    for (const auto & [name, value] : names) {
        if (text == name) {
            out = value;
            return true;
        }
    }
    return false;
}

// A setting of a struct, which is set from text.
template <typename Settings>
struct Setting {
    const char * key;
    std::string allowed;                                       // for error messages
    std::function<bool(Settings &, const std::string &)> set;  // returns false for a value that is not allowed
};

template <typename Settings, typename Number>
Setting<Settings> number(const char * key, Number Settings::*member, Number low, Number high, const char * allowed) {
    return {key, allowed, [=](Settings & s, const std::string & v) { return parse_number(v, low, high, s.*member); }};
}

// One of several names.
template <typename Settings, typename Value>
Setting<Settings> choice(const char * key, Value Settings::*member,
                         const std::vector<std::pair<const char *, Value>> & names) {
    std::string allowed;
    for (size_t i = 0; i < names.size(); ++i) {
        allowed += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i].first);
    }
    return {key, allowed, [=](Settings & s, const std::string & v) { return parse_name(v, names, s.*member); }};
}

template <typename Settings>
Setting<Settings> on_or_off(const char * key, bool Settings::*member, const char * on = "on") {
    return choice<Settings, bool>(key, member, {{on, true}, {"off", false}});
}

// Text that `parse` reads, or rejects with an Error.
template <typename Settings, typename Value, typename Parse>
Setting<Settings> parsed(const char * key, Value Settings::*member, Parse parse) {
    return {key, "", [=](Settings & s, const std::string & v) {
                s.*member = parse(v);
                return true;
            }};
}

template <typename Settings>
Setting<Settings> any_text(const char * key, std::string Settings::*member) {
    return parsed(key, member, [](const std::string & v) { return v; });
}

template <typename Settings>
std::string names_of(const std::vector<Setting<Settings>> & table) {
    std::string names;
    for (const Setting<Settings> & each : table) {
        names += (names.empty() ? "" : ", ") + std::string(each.key);
    }
    return names;
}

template <typename Settings>
const Setting<Settings> * find_setting(const std::vector<Setting<Settings>> & table, std::string_view key) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const auto & each) { return key == each.key; });
    return found != table.end() ? &*found : nullptr;
}

// Throws an Error that lists the allowed values; `settings` is then unchanged.
template <typename Settings>
void apply(const Setting<Settings> & setting, Settings & settings, const std::string & value) {
    if (!setting.set(settings, value)) {
        throw invalid_argument("option " + std::string(setting.key) + ": expected " + setting.allowed + ", got \"" +
                               value + "\"");
    }
}

}  // namespace eliza
