// How likely generated tokens were, and which were the likeliest: from the logits as the model gave them.
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

    // How many of the likeliest tokens to tell beside each, or `off`. What was not given out is forgotten. Throws
    // Error.
    void set(int32_t n_top, int32_t n_vocab);
    bool is_on() const { return n_top_ != off; }

    // Another token is to be chosen: one that was looked at and not kept is forgotten.
    void begin_token() { looked_at_.clear(); }

    // The token that was chosen from a row of logits. It counts once it is kept.
    void look_at(const float * row, int32_t n_vocab, llama_token token);

    // The token was generated: one that was looked at, or one that took no row.
    void keep(llama_token token);

    // What was kept is given out from now on.
    void tell() { n_told_ = rows_.size(); }

    void forget();

    // Copies what is given out, as many entries as there are for one token after the other, and forgets it. Returns
    // how many tokens that is. Throws Error, and nothing is lost, where it is more than `cap` entries.
    size_t take(eliza_token_logprob_t * out, size_t cap);

private:
    size_t entries_per_token() const { return static_cast<size_t>(n_top_) + 1; }

    int32_t n_top_ = off;
    std::vector<eliza_token_logprob_t> looked_at_;  // of one token, or none
    std::vector<eliza_token_logprob_t> rows_;
    size_t n_told_ = 0;  // entries
};

}  // namespace eliza
