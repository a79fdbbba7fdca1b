// A llama.cpp sampler that restricts the output to the leaves of a trie.
#pragma once

#include <cstdint>
#include <memory>

#include "token_trie/trie_cache.h"

struct llama_sampler;

namespace eliza {

// `n_vocab` is 0 if unknown. `mode` is ELIZA_TRIE_ARGMAX or ELIZA_TRIE_SAMPLE. The caller frees the sampler.
llama_sampler * new_token_trie_sampler(std::shared_ptr<const CachedTrie> trie, int mode, int32_t n_vocab);

}  // namespace eliza
