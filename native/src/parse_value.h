// Reading the values of options, which are text.
#pragma once

#include <charconv>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace eliza {

// False, and `out` unchanged, unless all of the text is a number from low to high.
template <typename Number>
bool parse_number(const std::string & text, Number low, Number high, Number & out) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
        return false;
    }
    out = value;
    return true;
}

// False, and `out` unchanged, unless the text is one of the names.
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
