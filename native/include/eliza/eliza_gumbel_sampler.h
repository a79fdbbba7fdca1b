/*
 * Gumbel-max sampling, as the last llama_sampler of a chain: it selects the token.
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
 * Selects the candidate with the largest logit + G, where the noise G = -log(-log(u)) and u is a hash
 * of seed_offset, of the position in the sequence and of the token: u = pcg(s + token) / 2^32, held to
 * [1e-7, 1 - 1e-7], with s = (position + seed_offset) * 2654435761 modulo 2^32. Candidates are drawn
 * with the probabilities of their softmax, for which nothing is computed.
 *
 *   accept  counts the position: tell it of the prompt's tokens too.
 *   reset   back to position 0. clone keeps the position.
 *
 * The same seed, position and candidates give the same token, whatever was drawn before. u has 24
 * significant bits and is at least 1e-7: a token rarer than about that is never drawn.
 */
ELIZA_API struct llama_sampler * llama_sampler_init_gumbel(uint32_t seed_offset);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_GUMBEL_SAMPLER_H */
