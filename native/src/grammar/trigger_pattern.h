// A regular expression that a text is searched for while it grows, in time that grows with the text and the pattern
// alone: all ways to match go side by side, byte by byte, as Thompson and Pike describe it.
//
// The language is ECMAScript's without what needs more: references to groups, and looking ahead or behind. Bytes are
// matched, not characters: ".", "\D", "\W", "\S" and "[^...]" match each byte of a character that is not ASCII, and
// "[...]" cannot name one.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace eliza {

class TriggerPattern {
public:
    static constexpr size_t max_instructions = 10000;

    // Throws Error that says what is wrong with the pattern, or too large.
    explicit TriggerPattern(std::string_view pattern);

    size_t size() const { return program_.size(); }

private:
    friend class PatternParser;
    friend class TriggerSearch;

    enum class Op : uint8_t { byte, split, jump, border, text_begin, text_end, word_border, no_word_border, match };
    struct Instruction {
        Op op;
        int32_t to = 1;     // of a jump and a split, from here: the way that is preferred; else an index
        int32_t other = 0;  // of a split
    };
    using Program = std::vector<Instruction>;
    using ByteSet = std::bitset<256>;

    Program program_;
    std::vector<ByteSet> sets_;
    size_t n_groups_ = 0;
};

// One search in one text. Not safe from two threads at once.
class TriggerSearch {
public:
    explicit TriggerSearch(std::shared_ptr<const TriggerPattern> pattern);

    // Goes on with the bytes that came. Where the pattern now matches somewhere in the text, returns where the first
    // of its groups begins that matched anything; without one, where the match begins. Of all matches it is the one
    // that begins first, and of these the one that the pattern prefers. Nothing is fed after that.
    std::optional<size_t> feed(std::string_view bytes);
    void reset();

private:
    static constexpr size_t unset = static_cast<size_t>(-1);
    static constexpr int text_ends = -1;

    // Ways to match, the preferred ones first.
    struct Ways {
        std::vector<uint32_t> at;     // in the program
        std::vector<size_t> borders;  // of the match's begin and of all groups, for each way

        void clear() {
            at.clear();
            borders.clear();
        }
    };
    struct Visit {
        uint32_t at;
        size_t border, value;  // to put back before, where `border` is one
    };

    bool follow_all(int next_byte);
    bool follow(uint32_t at, int next_byte);
    size_t begin_of_match() const;

    const std::shared_ptr<const TriggerPattern> pattern_;
    const size_t n_borders_;
    Ways arrived_;                // behind the last byte, before what is there is looked at
    Ways waiting_;                // for the next byte
    std::vector<uint64_t> seen_;  // in which round an instruction was last come to
    uint64_t round_ = 0;
    std::vector<Visit> to_visit_;
    std::vector<size_t> borders_;  // of the way that is being followed
    std::vector<size_t> match_;    // borders of the best match so far; none: empty
    size_t n_read_ = 0;
    int last_byte_ = text_ends;
};

}  // namespace eliza
