// The samplers of a stream, in llama.cpp's own objects.
#pragma once

#include <cstdint>
#include <vector>

#include "error.h"
#include "llama-cpp.h"

namespace eliza {

inline Error no_finite_logit() { return {ELIZA_ERR_FFI_FAULT, "the model gave no finite logit to choose from"}; }

struct SamplingParams {
    float temperature = 0.0f;            // <= 0: greedy
    float top_p = 1.0f;                  // <= 0 or >= 1: off
    int32_t top_k = 0;                   // <= 0: off
    float min_p = 0.0f;                  // <= 0: off
    float typical_p = 1.0f;              // <= 0 or >= 1: off
    float repeat_penalty = 1.0f;         // 0 or 1: off
    uint32_t seed = LLAMA_DEFAULT_SEED;  // the default draws a random one
    bool disable_thinking = false;
};

// An array of candidates that samplers may shrink and reorder. The storage is reused.
class Candidates {
public:
    // All n_vocab tokens with their logits.
    llama_token_data_array & fill(const float * logits, int32_t n_vocab);
    // The k given tokens, where logits[i] is that of tokens[i].
    llama_token_data_array & fill(const float * logits, const llama_token * tokens, size_t k);
    // The k given tokens out of the logits of all.
    llama_token_data_array & fill_from(const float * logits, const llama_token * tokens, size_t k);

private:
    std::vector<llama_token_data> data_;
    llama_token_data_array array_{};
};

class SamplerChain {
public:
    SamplerChain(const llama_vocab * vocab, const SamplingParams & params);

    // Runs the whole chain and returns what it selects. Throws Error when no candidate has a finite
    // logit.
    llama_token sample(llama_token_data_array & candidates);

    // The most likely candidate after the samplers that move single logits (bias, penalties) and
    // before those that reshape the distribution.
    llama_token argmax(llama_token_data_array & candidates);

    // True when argmax(candidates) is the argmax of the logits as they are.
    bool keeps_logits() const { return n_logit_samplers_ == 0; }
    bool greedy() const { return greedy_; }

    void accept(llama_token token) { llama_sampler_accept(chain_.get(), token); }
    void reset() { llama_sampler_reset(chain_.get()); }

private:
    void add(llama_sampler * sampler);

    llama_sampler_ptr chain_;
    int32_t n_logit_samplers_ = 0;  // these come first in the chain
    bool greedy_ = false;
};

// The index of the largest of n logits, the first of equals. Throws Error if none is above -infinity.
int32_t argmax(const float * logits, int32_t n);

}  // namespace eliza
