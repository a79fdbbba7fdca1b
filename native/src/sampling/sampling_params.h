// Sampling settings: llama.cpp's samplers by name, their parameters and their order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"

namespace eliza {

enum class SamplerKind {
    penalties,
    dry,
    top_n_sigma,
    top_k,
    typ_p,
    top_p,
    min_p,
    xtc,
    temperature,
    infill,
    adaptive_p,
};
const char * sampler_name(SamplerKind kind);

enum class Draw {
    cdf,     // inverse distribution function, with a random generator that keeps its state between draws
    gumbel,  // Gumbel-max, with a hash of seed, position and token
};

struct SamplingParams {
    // Samplers whose settings are off do nothing.
    std::vector<SamplerKind> order = {SamplerKind::penalties, SamplerKind::dry,   SamplerKind::top_n_sigma,
                                      SamplerKind::top_k,     SamplerKind::typ_p, SamplerKind::top_p,
                                      SamplerKind::min_p,     SamplerKind::xtc,   SamplerKind::temperature};

    float temperature = 0.0f;     // <= 0: greedy
    float dynatemp_range = 0.0f;  // 0: off
    float dynatemp_exponent = 1.0f;
    int32_t top_k = 0;             // <= 0: off
    float top_p = 1.0f;            // <= 0 or >= 1: off
    float min_p = 0.0f;            // <= 0: off
    float typical_p = 1.0f;        // <= 0 or >= 1: off
    float top_n_sigma = 0.0f;      // <= 0: off
    float xtc_probability = 0.0f;  // 0: off
    float xtc_threshold = 0.1f;    // above 0.5: off
    int32_t repeat_last_n = 64;    // number of last tokens that penalties consider
    float repeat_penalty = 1.0f;   // 0 or 1: off
    float frequency_penalty = 0.0f;
    float presence_penalty = 0.0f;
    float dry_multiplier = 0.0f;  // 0: off
    float dry_base = 1.75f;
    int32_t dry_allowed_length = 2;
    int32_t dry_penalty_last_n = 1024;
    std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
    int32_t mirostat = 0;  // 1 or 2: replaces all truncation
    float mirostat_tau = 5.0f;
    float mirostat_eta = 0.1f;
    float adaptive_target = -1.0f;  // < 0: off
    float adaptive_decay = 0.9f;
    std::vector<llama_logit_bias> logit_bias;
    Draw draw = Draw::cdf;
    uint32_t seed = LLAMA_DEFAULT_SEED;  // the default value draws a random seed
    bool disable_thinking = false;
    int32_t reasoning_budget = -1;  // maximum tokens in a reasoning block; -1: no limit
    std::string reasoning_start = "<think>";
    std::string reasoning_end = "</think>";
    std::string reasoning_message;  // written before reasoning_end when the budget is used up
};

// Sets the parameter `key`. Returns false for an unknown key. Throws an Error that lists the allowed values; `params`
// is then unchanged.
bool set_sampling_param(SamplingParams & params, std::string_view key, const std::string & value);

// Returns the names of all parameters.
std::string sampling_param_names();

// Applies a JSON object, all or nothing. Its members are the parameters above, with numbers, strings and arrays as
// values. "preset" is applied first, wherever it is in the object.
SamplingParams parse_sampling(SamplingParams params, std::string_view json);

// Throws an Error if a setting would be ignored: a sampler that is on but not in the order, or two samplers that each
// draw the token.
void check_together(const SamplingParams & params);

}  // namespace eliza
