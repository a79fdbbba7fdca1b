// Sets of characters, as byte sequences in UTF-8.
//
// A set is a small automaton. All sets share one numbering of places, and equal sets are stored once:
//
//     [a-zé]     place 0   'a' .. 'z'  complete      place 1   A9  complete
//                          C3          place 1
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace eliza {

struct CodePoints {
    uint32_t first, last;
};

class Utf8Classes {
public:
    using Place = uint32_t;
    static constexpr Place none = 0xffffffff;
    static constexpr Place complete = none - 1;  // the character has been read

    // Returns the place before a character of the set, or with `inverted` of its complement. Ranges may overlap or be
    // empty. U+0000, surrogates and values beyond U+10FFFF are in no set.
    Place add(std::vector<CodePoints> ranges, bool inverted);

    // Returns the place after a byte; `none` if the byte does not match.
    Place step(Place place, uint8_t byte) const;

    // Numbers the bytes so that bytes which no place distinguishes have the same number, from 0 up.
    std::array<uint8_t, 256> bytes_told_apart() const;

private:
    struct Edge {
        uint8_t first, last;
        Place to;
    };
    using Normal = std::vector<std::pair<uint32_t, uint32_t>>;

    struct Branch;
    Place add_place(const Branch & branch);

    std::vector<Edge> edges_;            // of all places, in ascending order for each place
    std::vector<uint32_t> begin_ = {0};  // the first edge of each place
    std::map<Normal, Place> known_;
};

}  // namespace eliza
