// A regular expression for searching a growing text. The time is bounded by the length of the text times the size of
// the pattern: all threads of the match advance together, byte by byte (Thompson's and Pike's algorithm).
//
// The syntax is ECMAScript's, without backreferences, lookahead and lookbehind. It matches bytes, not characters: ".",
// "\D", "\W", "\S" and "[^...]" match each byte of a non-ASCII character, and "[...]" cannot contain one.
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

    // Throws an Error if the pattern is invalid or too large.
    explicit TriggerPattern(std::string_view pattern);

    size_t size() const { return program_.size(); }

private:
    friend class PatternParser;
    friend class TriggerSearch;

    enum class Op : uint8_t { byte, split, jump, border, text_begin, text_end, word_border, no_word_border, match };
    struct Instruction {
        Op op;
        int32_t to = 1;     // jump: the relative target; split: the preferred relative target; others: an index
        int32_t other = 0;  // split: the other relative target
    };
    using Program = std::vector<Instruction>;
    using ByteSet = std::bitset<256>;

    Program program_;
    std::vector<ByteSet> sets_;
    size_t n_groups_ = 0;
};

// One search in one text. Not thread-safe.
class TriggerSearch {
public:
    explicit TriggerSearch(std::shared_ptr<const TriggerPattern> pattern);

    // Continues the search with the next bytes. If the pattern now matches somewhere in the text, returns the start of
    // the first group that matched a non-empty text, or the start of the match if no group did. If there are
    // several matches, the one that starts first counts; of matches with the same start, the one that the pattern
    // prefers. Do not call it again after a match.
    std::optional<size_t> feed(std::string_view bytes);
    void reset();

private:
    static constexpr size_t unset = static_cast<size_t>(-1);
    static constexpr int text_ends = -1;

    // The threads of the match, in descending order of preference.
    struct Ways {
        std::vector<uint32_t> at;     // instruction in the program
        std::vector<size_t> borders;  // start of the match, and start and end of all groups, for each thread

        void clear() {
            at.clear();
            borders.clear();
        }
    };
    struct Visit {
        uint32_t at;
        size_t border, value;  // `border` is restored to `value` first, unless it is `unset`
    };

    bool follow_all(int next_byte);
    bool follow(uint32_t at, int next_byte);
    size_t begin_of_match() const;

    const std::shared_ptr<const TriggerPattern> pattern_;
    const size_t n_borders_;
    Ways arrived_;                // after the last byte, not followed yet
    Ways waiting_;                // waiting for the next byte
    std::vector<uint64_t> seen_;  // the round in which an instruction was last visited
    uint64_t round_ = 0;
    std::vector<Visit> to_visit_;
    std::vector<size_t> borders_;  // of the thread that is being followed
    std::vector<size_t> match_;    // borders of the best match so far; empty if there is none
    size_t n_read_ = 0;
    int last_byte_ = text_ends;
};

}  // namespace eliza
