// Parsers for option values, which are strings.
#pragma once

#include <charconv>
#include <locale>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

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

}  // namespace eliza
