// Samplers for a program's own llama.cpp chain. Their interface cannot report a reason, so they return NULL for every
// error.

#include <exception>
#include <string_view>

#include "eliza/eliza_gumbel_sampler.h"
#include "eliza/eliza_inference.h"
#include "eliza/eliza_token_trie_sampler.h"
#include "llama.h"
#include "sampling/gumbel.h"
#include "sampling/token_trie_sampler.h"
#include "token_trie/rtkt.h"
#include "token_trie/trie_cache.h"

using namespace eliza;

namespace {

template <typename Make>
llama_sampler * null_if_it_fails(Make make) noexcept {
    try {
        return make();
    } catch (const std::exception &) {
        return nullptr;
    }
}

llama_sampler * sampler_of(std::string_view payload, int32_t n_vocab, int mode) noexcept {
    return null_if_it_fails(
        [&] { return new_token_trie_sampler(TrieCache::shared().get(payload, n_vocab), mode, n_vocab); });
}

}  // namespace

llama_sampler * llama_sampler_init_token_trie(const llama_vocab * vocab, const char * trie_descriptor_json, int mode) {
    if (trie_descriptor_json == nullptr || (mode != ELIZA_TRIE_ARGMAX && mode != ELIZA_TRIE_SAMPLE)) {
        return nullptr;
    }
    return sampler_of(trie_descriptor_json, vocab != nullptr ? llama_vocab_n_tokens(vocab) : 0, mode);
}

llama_sampler * eliza_llama_sampler_init_token_tree(int32_t n_vocab, const uint8_t * bytes, size_t size) {
    const std::string_view payload(reinterpret_cast<const char *>(bytes), bytes != nullptr ? size : 0);
    if (n_vocab < 0 || !is_rtkt(payload)) {
        return nullptr;
    }
    return sampler_of(payload, n_vocab, ELIZA_TRIE_ARGMAX);
}

llama_sampler * llama_sampler_init_gumbel(uint32_t seed_offset) {
    return null_if_it_fails([&] { return new_gumbel_sampler(seed_offset); });
}
