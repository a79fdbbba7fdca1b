#include "token_trie/trie_cache.h"

#include "token_trie/payload.h"
#include "token_trie/rtkt.h"

namespace eliza {

std::shared_ptr<const CachedTrie> TrieCache::get(std::string_view payload, int32_t n_vocab) {
    return tries_.get({payload, n_vocab}, [&] {
        Payload parsed = is_rtkt(payload) ? parse_rtkt(payload, n_vocab) : parse_payload(payload, n_vocab);
        return std::make_shared<const CachedTrie>(CachedTrie{std::move(parsed.model_id), TokenTrie(parsed.leaves)});
    });
}

// A static object as described in platform/process.h.
static TrieCache & cache_of_process = *new TrieCache;

TrieCache & TrieCache::shared() { return cache_of_process; }

}  // namespace eliza
