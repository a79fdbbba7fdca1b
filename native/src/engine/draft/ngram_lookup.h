// Guesses the next tokens by n-gram lookup: finds an earlier place with the same tokens as at the end of the text, and
// drafts the tokens that follow there. It uses the longest match; of several longest matches, the latest. A draft can
// also repeat its own first tokens, so it can continue a repetition whose period is shorter than the draft.
//
// A draft ends when its tokens become unlikely to be right. The probability that a guess is right depends on the length
// of the match. It is learnt from the text itself, whether the guesses were drafted or not. So prose gets no drafts,
// and a copied list gets long drafts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

class NGramLookup {
public:
    // Returns up to `most` tokens that may follow `tokens`, or none. Successive calls should pass the same text as it
    // grows; the text may also be cut and continued differently. The index takes time for each new token, and memory
    // for two numbers per token.
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most);

private:
    static constexpr size_t shortest_match = 2;     // tokens
    static constexpr size_t longest_match = 32;     // tokens; a longer match counts as this long
    static constexpr size_t most_candidates = 128;  // earlier places that are compared, latest first
    static constexpr size_t n_heads = size_t(1) << 14;

    struct Match {
        size_t length;  // number of equal tokens; 0 = no match
        size_t next;    // index of the token after the match
    };

    void follow(const std::vector<llama_token> & tokens);
    void drop_from(size_t position);
    void learn(const std::vector<llama_token> & tokens);
    Match longest(const std::vector<llama_token> & tokens) const;
    static size_t head_of(llama_token before_last, llama_token last);

    std::vector<llama_token> text_;  // the indexed tokens
    // For each position, the last earlier position whose last two tokens may be the same, or -1.
    std::vector<int32_t> earlier_;
    std::vector<int32_t> heads_ = std::vector<int32_t>(n_heads, -1);  // by hash of two tokens: the latest position

    std::array<float, longest_match + 1> chances_ = first_chances();  // probability of a right guess, by match length
    static std::array<float, longest_match + 1> first_chances();

    std::vector<llama_token> guessed_;  // by the last call, including tokens that were not drafted
    size_t guessed_length_ = 0;         // length of the match that it is based on
    size_t guessed_at_ = 0;             // index in the text of the first guessed token
};

}  // namespace eliza
