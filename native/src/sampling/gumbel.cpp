#include "sampling/gumbel.h"

#include <algorithm>
#include <cmath>

#include "eliza/eliza_gumbel_sampler.h"

namespace eliza {
namespace {

// "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
// Generation", O'Neill 2014; the 32-bit RXS-M-XS permutation.
uint32_t pcg_hash(uint32_t state) {
    state = state * 747796405u + 2891336453u;
    const uint32_t word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

constexpr float least = 1e-7f;

float noise(float uniform) { return -std::log(-std::log(uniform)); }

const float most_noise = noise(1.0f - least);

struct GumbelSampler {
    uint32_t seed_offset;
    uint32_t position = 0;  // tokens accepted so far, which is the position of the next one
};

GumbelSampler & self(const llama_sampler * sampler) { return *static_cast<GumbelSampler *>(sampler->ctx); }

const char * name(const llama_sampler *) { return "gumbel"; }

void accept(llama_sampler * sampler, llama_token) { ++self(sampler).position; }

void apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    const GumbelSampler & gumbel = self(sampler);
    const auto score = [&](size_t i) {
        const llama_token_data & candidate = candidates->data[i];
        return candidate.logit +
               noise(gumbel_uniform(gumbel.position, gumbel.seed_offset, static_cast<uint32_t>(candidate.id)));
    };
    // Start with the score of the most probable candidate. Noise is bounded, so candidates whose logit is far below
    // that score cannot win and are skipped.
    size_t best = 0;
    for (size_t i = 1; i < candidates->size; ++i) {
        if (candidates->data[i].logit > candidates->data[best].logit) {
            best = i;
        }
    }
    float best_score = score(best);
    for (size_t i = 0; i < candidates->size; ++i) {
        if (candidates->data[i].logit + most_noise >= best_score) {
            const float here = score(i);
            const bool wins =
                here > best_score || (here == best_score && candidates->data[i].id < candidates->data[best].id);
            if (wins) {
                best = i;
                best_score = here;
            }
        }
    }
    candidates->selected = static_cast<int64_t>(best);
}

void reset(llama_sampler * sampler) { self(sampler).position = 0; }

void free(llama_sampler * sampler) { delete &self(sampler); }

llama_sampler * clone(const llama_sampler * sampler);

llama_sampler_i make_interface() {
    llama_sampler_i interface{};
    interface.name = name;
    interface.accept = accept;
    interface.apply = apply;
    interface.reset = reset;
    interface.clone = clone;
    interface.free = free;
    return interface;
}

llama_sampler_i gumbel_interface = make_interface();

llama_sampler * clone(const llama_sampler * sampler) {
    return llama_sampler_init(&gumbel_interface, new GumbelSampler(self(sampler)));
}

}  // namespace

float gumbel_uniform(uint32_t position, uint32_t seed_offset, uint32_t token) {
    const uint32_t element_seed = (position + seed_offset) * 2654435761u;
    const float uniform = static_cast<float>(pcg_hash(element_seed + token)) / 4294967296.0f;
    return std::min(std::max(uniform, least), 1.0f - least);
}

llama_sampler * new_gumbel_sampler(uint32_t seed_offset) {
    return llama_sampler_init(&gumbel_interface, new GumbelSampler{seed_offset});
}

}  // namespace eliza
