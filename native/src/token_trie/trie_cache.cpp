#include "token_trie/trie_cache.h"

#include "token_trie/payload.h"
#include "token_trie/rtkt.h"

namespace eliza {

std::shared_ptr<const CachedTrie> TrieCache::find(const Key & key) {
    const auto found = index_.find(key);
    if (found == index_.end()) {
        return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->trie;
}

std::shared_ptr<const CachedTrie> TrieCache::get(std::string_view payload, int32_t n_vocab) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (auto trie = find({payload, n_vocab})) {
            return trie;
        }
    }
    // Built outside the lock: a large payload does not hold up the other threads.
    Payload parsed = is_rtkt(payload) ? parse_rtkt(payload, n_vocab) : parse_payload(payload, n_vocab);
    auto trie = std::make_shared<const CachedTrie>(CachedTrie{std::move(parsed.model_id), TokenTrie(parsed.leaves)});

    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto other = find({payload, n_vocab})) {
        return other;  // another thread built the same one meanwhile
    }
    entries_.push_front({std::string(payload), n_vocab, trie});
    index_.emplace(Key{entries_.front().payload, n_vocab}, entries_.begin());
    if (entries_.size() > capacity_) {
        index_.erase(Key{entries_.back().payload, entries_.back().n_vocab});
        entries_.pop_back();
    }
    return trie;
}

size_t TrieCache::size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return entries_.size();
}

TrieCache & TrieCache::shared() {
    static TrieCache cache;
    return cache;
}

}  // namespace eliza
