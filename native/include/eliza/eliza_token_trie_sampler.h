/*
 * The token-trie sampler alone, as one more llama_sampler for a llama.cpp sampler chain.
 *
 *     llama_sampler_chain_add(chain, llama_sampler_init_temp(0.7f));
 *     llama_sampler_chain_add(chain, llama_sampler_init_token_trie(vocab, json, 1));
 *     llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
 */
#ifndef ELIZA_TOKEN_TRIE_SAMPLER_H
#define ELIZA_TOKEN_TRIE_SAMPLER_H

#include <stddef.h>
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

struct llama_vocab;
struct llama_sampler;

/*
 * Builds the trie of a payload (the JSON of eliza_inference_set_token_trie; a NUL ends it) and
 * returns a sampler that stands at its root. Identical payloads share one trie.
 *
 *   apply   sets the logit of every token that cannot come next to -infinity. Mode 0 then also
 *           selects: the most likely legal token moves to the front and is the one candidate left,
 *           whatever sampler follows. Mode 1 leaves all legal tokens to the samplers that follow.
 *           At a leaf that others continue, and after the last leaf, nothing is masked.
 *   accept  walks to the child, or ends the span.
 *   reset   back to the root. clone keeps the position.
 *
 * It also runs in the compute graph, with llama.cpp's backend sampling (llama_context_params.samplers,
 * n_outputs_max_per_seq = 1), where the device has the operations; then the llama.cpp of the program
 * must be the one this library is linked with, or this sampler be compiled against the program's.
 *
 * `vocab` must come from the llama.cpp this library is linked with, or be NULL; then token ids are
 * not checked against the vocabulary. Returns NULL for a bad payload, an unknown mode or no leaves.
 */
ELIZA_API struct llama_sampler * llama_sampler_init_token_trie(const struct llama_vocab * vocab,
                                                               const char * trie_descriptor_json, int mode);

/*
 * The same from elizaOS's binary tree (RTKT, see eliza_inference_set_token_trie), in mode 0. Token ids
 * are checked against n_vocab unless that is 0. Returns NULL for a malformed tree.
 */
ELIZA_API struct llama_sampler * eliza_llama_sampler_init_token_tree(int32_t n_vocab, const uint8_t * bytes,
                                                                     size_t size);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_TOKEN_TRIE_SAMPLER_H */
