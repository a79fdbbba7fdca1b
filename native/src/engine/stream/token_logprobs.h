// The log-probabilities of generated tokens and of the most probable tokens at their positions, computed from the
// model's unchanged logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "eliza/eliza_inference.h"
#include "llama.h"

namespace eliza {

class TokenLogprobs {
public:
    static constexpr int32_t off = -1;
    static constexpr int32_t most_top = 1024;

    // Sets how many of the most probable tokens are reported for each position, or `off`. Forgets all entries that were
    // not taken. Throws Error.
    void set(int32_t n_top, int32_t n_vocab);
    bool is_on() const { return n_top_ != off; }

    // Begins with the next token: forgets a token that was looked at and not kept.
    void begin_token() { looked_at_.clear(); }

    // Computes the entries of a token that was chosen from a row of logits. keep() confirms them.
    void look_at(const float * row, int32_t n_vocab, llama_token token);

    // Confirms that the token was generated: the one that was looked at, or one that needed no logits.
    void keep(llama_token token);

    // Makes all kept entries available to take().
    void tell() { n_told_ = rows_.size(); }

    void forget();

    // Copies the available entries, token after token, and forgets them. Returns the number of tokens. Throws Error,
    // and keeps the entries, if there are more than `cap`.
    size_t take(eliza_token_logprob_t * out, size_t cap);

private:
    size_t entries_per_token() const { return static_cast<size_t>(n_top_) + 1; }

    int32_t n_top_ = off;
    std::vector<eliza_token_logprob_t> looked_at_;  // of one token, or none
    std::vector<eliza_token_logprob_t> rows_;
    size_t n_told_ = 0;  // entries
};

}  // namespace eliza
