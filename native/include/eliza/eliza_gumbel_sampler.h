/*
 * Gumbel-max sampling as a llama_sampler. It selects the token, so it is the last sampler of a chain.
 *
 *     llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
 *     llama_sampler_chain_add(chain, llama_sampler_init_temp(0.7f));
 *     llama_sampler_chain_add(chain, llama_sampler_init_gumbel(seed));
 */
#ifndef ELIZA_GUMBEL_SAMPLER_H
#define ELIZA_GUMBEL_SAMPLER_H

#include <stdint.h>

#ifndef ELIZA_API
#if defined(_WIN32)
#define ELIZA_API __declspec(dllexport)
#else
#define ELIZA_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct llama_sampler;

/*
 * Creates a sampler that selects the candidate with the largest logit + G. The noise is G = -log(-log(u)), where u
 * is a hash of seed_offset, the position in the sequence and the token: u = pcg(s + token) / 2^32, clamped to
 * [1e-7, 1 - 1e-7], with s = (position + seed_offset) * 2654435761 modulo 2^32. This draws candidates with their
 * softmax probabilities, without computing the softmax.
 *
 *   accept  advances the position by one. Call it for the tokens of the prompt too.
 *   reset   goes back to position 0.
 *   clone   keeps the position.
 *
 * The same seed, position and candidates always give the same token, regardless of earlier draws. u has 24
 * significant bits and is at least 1e-7, so a token with a probability below about 1e-7 is never drawn.
 */
ELIZA_API struct llama_sampler * llama_sampler_init_gumbel(uint32_t seed_offset);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_GUMBEL_SAMPLER_H */
