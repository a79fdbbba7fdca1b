// A cache of tries. A program that passes the same payload many times parses it only once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lru_cache.h"
#include "platform/process.h"
#include "token_trie/token_trie.h"

namespace eliza {

struct CachedTrie {
    std::string model_id;
    TokenTrie trie;

    size_t size_bytes() const { return model_id.size() + trie.size_bytes(); }
};

// The key is the payload's bytes and the vocabulary size that they were checked against. The least recently used
// entries are dropped; a dropped trie stays alive while callers hold it. Safe from any thread.
class TrieCache {
public:
    static constexpr size_t default_capacity = 128;
    static constexpr size_t default_bytes = size_t(256) << 20;  // payloads and tries

    explicit TrieCache(size_t capacity = default_capacity, size_t most_bytes = default_bytes)
        : tries_(capacity, most_bytes) {}

    // Returns the cached trie of this payload, or a new one. Throws the Errors of parse_payload() and parse_rtkt().
    // Rejected payloads are not cached.
    std::shared_ptr<const CachedTrie> get(std::string_view payload, int32_t n_vocab);

    size_t size() const { return tries_.size(); }
    size_t size_bytes() const { return tries_.size_bytes(); }

    // The cache of the process.
    static TrieCache & shared();

private:
    struct View {
        std::string_view payload;
        int32_t n_vocab;
        bool operator==(const View & other) const { return n_vocab == other.n_vocab && payload == other.payload; }
        size_t size_bytes() const { return payload.size(); }
    };
    struct Key {
        std::string payload;
        int32_t n_vocab;
        explicit Key(const View & view) : payload(view.payload), n_vocab(view.n_vocab) {}
        operator View() const { return {payload, n_vocab}; }
    };
    struct Hash {
        size_t operator()(const View & key) const {
            return std::hash<std::string_view>()(key.payload) ^ static_cast<size_t>(key.n_vocab);
        }
    };

    LruCache<Key, CachedTrie, View, Hash, GlobalMutex> tries_;
};

}  // namespace eliza
