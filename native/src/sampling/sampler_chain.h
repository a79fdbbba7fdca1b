// The samplers of a stream, in llama.cpp's own objects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "error.h"
#include "llama-cpp.h"
#include "sampling/sampling_params.h"

namespace eliza {

inline Error no_finite_logit() { return {ELIZA_ERR_FFI_FAULT, "the model gave no finite logit to choose from"}; }

// An array of candidates that samplers may shrink and reorder. The storage is reused. A logit that is
// no number is an Error; where some are +infinity, only those are candidates, all alike.
class Candidates {
public:
    // All n_vocab tokens with their logits.
    llama_token_data_array & fill(const float * logits, int32_t n_vocab);
    // The k most likely of all n_vocab tokens, the most likely first.
    llama_token_data_array & fill_top(const float * logits, int32_t n_vocab, size_t k);
    // The k given tokens, where logits[i] is that of tokens[i].
    llama_token_data_array & fill(const float * logits, const llama_token * tokens, size_t k);
    // The k given tokens out of the logits of all.
    llama_token_data_array & fill_from(const float * logits, const llama_token * tokens, size_t k);

private:
    llama_token_data_array & filled(bool sorted, bool any_infinite);

    std::vector<llama_token_data> data_;
    llama_token_data_array array_{};
};

class SamplerChain {
public:
    // Throws Error where the settings do not fit the vocabulary. Instead of `before`: a sampler that draws, and has
    // the same settings there, will be taken from it; one with others does not begin at a seed that it has begun at.
    SamplerChain(const llama_vocab * vocab, const SamplingParams & params, const SamplerChain * before = nullptr);

    // Runs the whole chain and returns what it selects. Inside a span, `infill` is left out, which could
    // select a token that is no candidate. Throws Error when none is left to select.
    llama_token sample(llama_token_data_array & candidates, bool in_span = false);

    // So many of the most likely tokens are enough to sample from; 0 = all are needed. Where top-k comes
    // first, the rest of the vocabulary need not even become candidates.
    size_t n_candidates() const { return n_candidates_; }

    // The most likely candidate after the samplers that move single logits (bias, penalties, DRY) and
    // without those that reshape the distribution.
    llama_token argmax(llama_token_data_array & candidates);

    // True when argmax(candidates) is the argmax of the logits as they are.
    bool keeps_logits() const { return logit_samplers_.empty(); }
    bool greedy() const { return greedy_; }

    // True when what one token gets depends on which others are candidates, beyond its share of them.
    bool reshapes() const { return reshapes_; }

    // The names of the samplers that do something, in their order, with ';' between them.
    std::string describe() const;

    void accept(llama_token token) { llama_sampler_accept(chain_.get(), token); }

    // The same for a token that the chain before this one knew of: what will be taken from there knows it.
    void catch_up(llama_token token);

    // Takes what draws as it did from the chain before this one, which is of no use any more.
    void take_from(SamplerChain & before);

    void reset() { llama_sampler_reset(chain_.get()); }

private:
    void add(llama_sampler * sampler, const char * name);
    void add_shaping(llama_sampler * sampler, const char * name);
    void add_in_order(const llama_vocab * vocab, const SamplingParams & params, SamplerKind kind);
    size_t count_candidates(const SamplingParams & params) const;
    void add_selection(const llama_vocab * vocab, const SamplingParams & params);

    // Adds a sampler that draws, and so goes on from call to call, as `make` makes it from a seed.
    void add_drawing(const char * name, std::vector<float> settings, bool is_shaping,
                     const std::function<llama_sampler *(uint32_t seed)> & make);

    llama_sampler_ptr chain_;
    std::vector<const char *> names_;
    std::vector<int32_t> logit_samplers_;  // places in the chain
    int32_t infill_ = -1;
    size_t n_candidates_ = 0;
    bool greedy_ = false;
    bool reshapes_ = false;
    int32_t typical_ = -1;  // places in the chain
    int32_t xtc_ = -1;

    struct Drawing {
        const char * name;
        std::vector<float> settings;
        int32_t place;
        uint32_t n_begun;      // times that a sampler of this name has begun, under the same seed
        int32_t place_before;  // of the one to take, or -1
    };
    std::vector<Drawing> drawing_;
    const SamplerChain * before_;  // while this one is made
    uint32_t seed_;
};

// Seeds that follow from one: the first is that one. Where the system draws it, it draws all.
uint32_t nth_seed(uint32_t seed, uint32_t n);

// The index of the largest of n logits, the first of equals. Throws Error if none is above -infinity.
int32_t argmax(const float * logits, int32_t n);

}  // namespace eliza
