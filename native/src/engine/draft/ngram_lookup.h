// Guesses at how a text goes on by what followed its last tokens where they stood before: the longest such
// match, of several the latest. What is guessed may itself be matched, so a text that repeats goes on for
// ever, whatever its period.
//
// A draft ends where it is no longer likely to be right. How likely that is after a match of so many tokens
// is learnt from the text itself, drafted or not: prose earns no drafts, a list that is copied long ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

class NGramLookup {
public:
    // What may follow the tokens: `most` at the most, or none. The calls' texts are thought to be one that
    // grows; it may also be cut and go on otherwise. Takes time for the tokens that are new, and memory for
    // two numbers per token.
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most);

private:
    static constexpr size_t shortest_match = 2;     // tokens
    static constexpr size_t longest_match = 32;     // that is told apart from longer ones
    static constexpr size_t most_candidates = 128;  // that are compared, the latest ones
    static constexpr size_t n_heads = size_t(1) << 14;

    struct Match {
        size_t length;  // tokens that are the same; 0: none
        size_t next;    // where the text went on
    };

    void follow(const std::vector<llama_token> & tokens);
    void drop_from(size_t position);
    void learn(const std::vector<llama_token> & tokens);
    Match longest(const std::vector<llama_token> & tokens) const;
    static size_t head_of(llama_token before_last, llama_token last);

    std::vector<llama_token> text_;  // that is indexed
    std::vector<int32_t> earlier_;   // by position: the last one before it whose last tokens may be the same
    std::vector<int32_t> heads_ = std::vector<int32_t>(n_heads, -1);  // the latest such position

    std::array<float, longest_match + 1> chances_ = first_chances();  // by length of a match: of being right
    static std::array<float, longest_match + 1> first_chances();

    std::vector<llama_token> guessed_;  // by the last call, also what was not worth a draft
    size_t guessed_length_ = 0;         // of the match behind it
    size_t guessed_at_ = 0;             // where it would stand
};

}  // namespace eliza
