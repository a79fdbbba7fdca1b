// Gumbel-max: the token with the largest logit + noise, the noise being a hash of where it stands.
//
//     seed of a position     s = (position + seed_offset) * 2654435761            (mod 2^32)
//     uniform of a token     u = pcg(s + token) / 2^32, at least 1e-7, at most 1 - 1e-7
//     noise                  G = -log(-log(u))
//
// argmax(logit + G) is distributed as softmax(logit) (Maddison, Tarlow and Minka, "A* Sampling", 2014).
// Nothing is remembered between draws: the same seed and position give the same noise, whatever was
// drawn before, and that of a token does not depend on which others are candidates.
#pragma once

#include <cstdint>

#include "llama.h"

namespace eliza {

// The uniform number of one token, in [1e-7, 1 - 1e-7].
float gumbel_uniform(uint32_t position, uint32_t seed_offset, uint32_t token);

// A sampler that draws by it. The caller frees the sampler.
llama_sampler * new_gumbel_sampler(uint32_t seed_offset);

}  // namespace eliza
