// Sets of characters as the bytes that UTF-8 writes them with.
//
// A set is a small automaton. Its places are numbered with those of all other sets, and equal sets are one:
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

    // The place before a character of the set, or of all others where `inverted`. Ranges may overlap and may be empty;
    // U+0000, surrogates and what is beyond U+10FFFF are in no set.
    Place add(std::vector<CodePoints> ranges, bool inverted);

    // Where a byte leads; none where it leads nowhere.
    Place step(Place place, uint8_t byte) const;

    // Bytes that no place tells apart have the same number, from 0 up.
    std::array<uint8_t, 256> bytes_told_apart() const;

private:
    struct Edge {
        uint8_t first, last;
        Place to;
    };
    using Normal = std::vector<std::pair<uint32_t, uint32_t>>;

    struct Branch;
    Place add_place(const Branch & branch);

    std::vector<Edge> edges_;            // of all places, each one's ascending
    std::vector<uint32_t> begin_ = {0};  // of each place's edges
    std::map<Normal, Place> known_;
};

}  // namespace eliza
