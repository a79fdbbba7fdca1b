/*
 * The token-trie sampler as a llama_sampler, for use in a llama.cpp sampler chain.
 *
 *     llama_sampler_chain_add(chain, llama_sampler_init_token_trie(vocab, json, 1));
 *     llama_sampler_chain_add(chain, llama_sampler_init_temp(0.7f));
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
 * Builds the trie of a payload (the JSON of eliza_inference_set_token_trie, NUL-terminated) and returns a sampler
 * that starts at its root. Identical payloads share one trie.
 *
 *   apply   sets the logit of every token that is not allowed next to -infinity. Mode 0 also selects the token: the
 *           most probable allowed token moves to the front and is the only candidate left, whatever sampler
 *           follows. Mode 1 leaves all allowed tokens to the samplers that follow. At a leaf that is the beginning
 *           of another leaf, and after the span has ended, nothing is masked.
 *   accept  moves to the child node, or ends the span.
 *   reset   goes back to the root.
 *   clone   keeps the position.
 *
 * The sampler can also run in the compute graph with llama.cpp's backend sampling (llama_context_params.samplers,
 * n_outputs_max_per_seq = 1), if the device supports the operations. In that case the program must use the same
 * llama.cpp that this library is linked with, or compile this sampler against its own.
 *
 * `vocab` must come from the llama.cpp that this library is linked with, or be NULL; with NULL, token ids are not
 * checked against the vocabulary. Returns NULL if the payload is invalid or has no leaves, or the mode is unknown.
 */
ELIZA_API struct llama_sampler * llama_sampler_init_token_trie(const struct llama_vocab * vocab,
                                                               const char * trie_descriptor_json, int mode);

/*
 * Does the same for elizaOS's binary tree (RTKT, see eliza_inference_set_token_trie), in mode 0. Token ids are
 * checked against n_vocab, unless n_vocab is 0. Returns NULL if the tree is malformed.
 */
ELIZA_API struct llama_sampler * eliza_llama_sampler_init_token_tree(int32_t n_vocab, const uint8_t * bytes,
                                                                     size_t size);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_TOKEN_TRIE_SAMPLER_H */
