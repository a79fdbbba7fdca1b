// The samplers of a stream, as llama.cpp's own objects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cmath>
#include "error.h"

#include "llama-cpp.h"
#include "sampling/sampling_params.h"

namespace eliza {

inline Error no_finite_logit() { return {ELIZA_ERR_FFI_FAULT, "the model gave no finite logit to choose from"}; }

// Checks that logits are numbers or -infinity. It is branchless, so that the loops over a vocabulary that use it can be
// vectorized.
class LogitCheck {
public:
    void look_at(float logit) { is_wrong_ |= logit < INFINITY ? 0 : 1; }

    // Throws an Error if a logit is NaN or +infinity.
    void finish() const {
        if (is_wrong_ != 0) {
            throw Error(ELIZA_ERR_FFI_FAULT, "the model gave a logit that is not a finite number");
        }
    }

private:
    int is_wrong_ = 0;
};

// An array of candidates that samplers may shrink and reorder. The storage is reused. A logit that is NaN or +infinity
// is an Error.
class Candidates {
public:
    // All n_vocab tokens with their logits.
    llama_token_data_array & fill(const float * logits, int32_t n_vocab);
    // The k most probable of all n_vocab tokens, in descending order.
    llama_token_data_array & fill_top(const float * logits, int32_t n_vocab, size_t k);
    // The k given tokens, where logits[i] belongs to tokens[i].
    llama_token_data_array & fill(const float * logits, const llama_token * tokens, size_t k);
    // The k given tokens, where `logits` has one entry per token of the vocabulary.
    llama_token_data_array & fill_from(const float * logits, const llama_token * tokens, size_t k);

private:
    template <typename CandidateAt>
    llama_token_data_array & fill_with(size_t n, const CandidateAt & candidate_at);
    llama_token_data_array & filled(bool sorted);

    std::vector<llama_token_data> data_;
    llama_token_data_array array_{};
};

class SamplerChain {
public:
    // Throws an Error if the settings do not fit the vocabulary. `before` is the chain that this one replaces, if any.
    // Drawing samplers with unchanged settings will be taken from it. Drawing samplers with changed settings get a seed
    // that was not used before.
    SamplerChain(const llama_vocab * vocab, const SamplingParams & params, const SamplerChain * before = nullptr);

    // Runs the whole chain and returns the selected token. In a span, `infill` is skipped, because it could select a
    // token that is not a candidate. Throws an Error if no token is left.
    llama_token sample(llama_token_data_array & candidates, bool in_span = false);

    // The number of most probable tokens that are enough to sample from; 0 = all are needed. If top-k comes first, the
    // rest of the vocabulary need not become candidates.
    size_t n_candidates() const { return n_candidates_; }

    // Returns the most probable candidate, after the samplers that change single logits (bias, penalties, DRY) and
    // without samplers that reshape the distribution.
    llama_token argmax(llama_token_data_array & candidates);

    // True if argmax(candidates) is the argmax of the unmodified logits.
    bool keeps_logits() const { return logit_samplers_.empty(); }
    bool greedy() const { return greedy_; }

    // True if some sampler changes or removes a token depending on the other candidates, as top-p does.
    bool reshapes() const { return reshapes_; }

    // The names of the active samplers in their order, separated by ';'.
    std::string describe() const;

    void accept(llama_token token) { llama_sampler_accept(chain_.get(), token); }

    // Accepts a token that the previous chain has already accepted. Skips the samplers that will be taken from that
    // chain, because they have already seen the token.
    void catch_up(llama_token token);

    // Takes over the drawing samplers with unchanged settings from the previous chain, which must not be used
    // afterwards.
    void take_from(SamplerChain & before);

    void reset() { llama_sampler_reset(chain_.get()); }

private:
    void add(llama_sampler * sampler, const char * name);
    void add_shaping(llama_sampler * sampler, const char * name);
    void add_in_order(const llama_vocab * vocab, const SamplingParams & params, SamplerKind kind);
    size_t count_candidates(const SamplingParams & params) const;
    void add_selection(const llama_vocab * vocab, const SamplingParams & params);

    // Adds a sampler that draws and therefore has a state. `make` creates it from a seed.
    void add_drawing(const char * name, std::vector<float> settings, bool is_shaping,
                     const std::function<llama_sampler *(uint32_t seed)> & make);

    llama_sampler_ptr chain_;
    std::vector<const char *> names_;
    std::vector<int32_t> logit_samplers_;  // indices in the chain
    int32_t infill_ = -1;
    size_t n_candidates_ = 0;
    bool greedy_ = false;
    bool reshapes_ = false;
    int32_t typical_ = -1;  // indices in the chain
    int32_t xtc_ = -1;

    struct Drawing {
        const char * name;
        std::vector<float> settings;
        int32_t place;
        uint32_t n_begun;      // number of samplers with this name created under the same seed
        int32_t place_before;  // index of the sampler to take from the previous chain, or -1
    };
    std::vector<Drawing> drawing_;
    const SamplerChain * before_;  // only used by the constructor
    uint32_t seed_;
};

// Returns element n of a sequence of seeds derived from `seed`, which is element 0. If `seed` stands for a random seed,
// so does every element.
uint32_t nth_seed(uint32_t seed, uint32_t n);

// Returns the index of the largest of n logits, the first one if there are several. Throws an Error if none is above
// -infinity, or if one is not a number.
int32_t argmax(const float * logits, int32_t n);

}  // namespace eliza
