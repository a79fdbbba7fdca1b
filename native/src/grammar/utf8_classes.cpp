#include "grammar/utf8_classes.h"

#include <algorithm>
#include <bitset>

namespace eliza {
namespace {

constexpr uint32_t last_code_point = 0x10ffff;
constexpr uint32_t first_surrogate = 0xd800, last_surrogate = 0xdfff;

struct ByteRange {
    uint8_t first, last;
};

// Splits a range of code points into sets of byte sequences in which every byte has one range.
template <typename Visit>
void for_each_sequence(uint32_t first, uint32_t last, const Visit & visit) {
    constexpr uint32_t longest_of_length[] = {0x7f, 0x7ff, 0xffff, last_code_point};
    constexpr uint8_t lead_of_length[] = {0x00, 0xc0, 0xe0, 0xf0};
    size_t length = 1;
    while (first > longest_of_length[length - 1]) {
        ++length;
    }
    if (const uint32_t longest = longest_of_length[length - 1]; last > longest) {
        for_each_sequence(first, longest, visit);
        for_each_sequence(longest + 1, last, visit);
        return;
    }
    // If `first` and `last` differ in an earlier byte, the later bytes must cover their whole range. If they do not,
    // split the range in two.
    for (size_t n_free = 1; n_free < length; ++n_free) {
        const uint32_t free = (1u << (6 * n_free)) - 1;
        if ((first & ~free) == (last & ~free)) {
            continue;
        }
        if ((first & free) != 0) {
            for_each_sequence(first, first | free, visit);
            for_each_sequence((first | free) + 1, last, visit);
            return;
        }
        if ((last & free) != free) {
            for_each_sequence(first, (last & ~free) - 1, visit);
            for_each_sequence(last & ~free, last, visit);
            return;
        }
    }
    ByteRange bytes[4];
    for (size_t i = 0; i < length; ++i) {
        const size_t n_bits_behind = 6 * (length - 1 - i);
        const uint32_t bits = i == 0 ? ~0u : 0x3f, mark = i == 0 ? lead_of_length[length - 1] : 0x80;
        bytes[i] = {static_cast<uint8_t>(mark | (first >> n_bits_behind & bits)),
                    static_cast<uint8_t>(mark | (last >> n_bits_behind & bits))};
    }
    visit(bytes, length);
}

// Returns sorted, disjoint ranges without code points that are not characters.
std::vector<std::pair<uint32_t, uint32_t>> normalized(std::vector<CodePoints> ranges, bool inverted) {
    std::sort(ranges.begin(), ranges.end(),
              [](const CodePoints & a, const CodePoints & b) { return a.first < b.first; });
    std::vector<std::pair<uint32_t, uint32_t>> joined;
    for (const CodePoints & range : ranges) {
        const uint32_t last = std::min(range.last, last_code_point);
        if (range.first > last) {
            continue;
        }
        if (!joined.empty() && range.first <= joined.back().second + 1) {
            joined.back().second = std::max(joined.back().second, last);
        } else {
            joined.emplace_back(range.first, last);
        }
    }
    if (inverted) {
        std::vector<std::pair<uint32_t, uint32_t>> others;
        uint32_t next = 0;
        for (const auto & [first, last] : joined) {
            if (first > next) {
                others.emplace_back(next, first - 1);
            }
            next = last + 1;
        }
        if (next <= last_code_point) {
            others.emplace_back(next, last_code_point);
        }
        joined = std::move(others);
    }
    std::vector<std::pair<uint32_t, uint32_t>> characters;
    const auto add = [&](uint32_t first, uint32_t last) {
        if (first <= last) {
            characters.emplace_back(first, last);
        }
    };
    for (const auto & [first, last] : joined) {
        add(std::max(first, 1u), std::min(last, first_surrogate - 1));
        add(std::max(first, last_surrogate + 1), last);
    }
    return characters;
}

}  // namespace

struct Utf8Classes::Branch {
    uint8_t first, last;
    std::vector<Branch> next;  // empty if the character ends here
};

Utf8Classes::Place Utf8Classes::add(std::vector<CodePoints> ranges, bool inverted) {
    Normal characters = normalized(std::move(ranges), inverted);
    if (const auto known = known_.find(characters); known != known_.end()) {
        return known->second;
    }
    // Sequences are added in ascending order, so only the last branch can have the same beginning.
    Branch root{0, 0, {}};
    for (const auto & [first, last] : characters) {
        for_each_sequence(first, last, [&](const ByteRange * bytes, size_t length) {
            Branch * branch = &root;
            for (size_t i = 0; i < length; ++i) {
                std::vector<Branch> & next = branch->next;
                if (next.empty() || next.back().first != bytes[i].first || next.back().next.empty()) {
                    next.push_back({bytes[i].first, bytes[i].last, {}});
                }
                branch = &next.back();
            }
        });
    }
    const Place place = add_place(root);
    known_.emplace(std::move(characters), place);
    return place;
}

Utf8Classes::Place Utf8Classes::add_place(const Branch & branch) {
    std::vector<Edge> edges;
    for (const Branch & next : branch.next) {
        edges.push_back({next.first, next.last, next.next.empty() ? complete : add_place(next)});
    }
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    begin_.push_back(static_cast<uint32_t>(edges_.size()));
    return static_cast<Place>(begin_.size() - 2);
}

Utf8Classes::Place Utf8Classes::step(Place place, uint8_t byte) const {
    const auto begin = edges_.begin() + begin_[place], end = edges_.begin() + begin_[place + 1];
    const auto edge = std::partition_point(begin, end, [&](const Edge & each) { return each.last < byte; });
    return edge != end && edge->first <= byte ? edge->to : none;
}

std::array<uint8_t, 256> Utf8Classes::bytes_told_apart() const {
    std::bitset<257> begins;
    for (const Edge & edge : edges_) {
        begins.set(edge.first);
        begins.set(size_t(edge.last) + 1);
    }
    std::array<uint8_t, 256> numbers{};
    uint8_t number = 0;
    for (size_t byte = 1; byte < 256; ++byte) {
        number = static_cast<uint8_t>(number + (begins[byte] ? 1 : 0));
        numbers[byte] = number;
    }
    return numbers;
}

}  // namespace eliza
