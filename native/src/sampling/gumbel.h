// Gumbel-max sampling: selects the token with the largest logit + noise. The noise is a hash of the position and the
// token.
//
//     seed of a position     s = (position + seed_offset) * 2654435761            (mod 2^32)
//     uniform of a token     u = pcg(s + token) / 2^32, at least 1e-7, at most 1 - 1e-7
//     noise                  G = -log(-log(u))
//
// argmax(logit + G) is distributed as softmax(logit) (Maddison, Tarlow and Minka, "A* Sampling", 2014). There is no
// state between draws: the same seed and position give the same noise, regardless of earlier draws. A token's noise
// does not depend on the other candidates.
#pragma once

#include <cstdint>

#include "llama.h"

namespace eliza {

// Returns the uniform number of one token, in [1e-7, 1 - 1e-7].
float gumbel_uniform(uint32_t position, uint32_t seed_offset, uint32_t token);

// Returns a sampler that draws this way. The caller frees it.
llama_sampler * new_gumbel_sampler(uint32_t seed_offset);

}  // namespace eliza
