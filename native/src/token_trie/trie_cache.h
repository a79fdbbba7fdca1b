// Tries by payload, so that an agent that offers the same choices on every turn parses them once.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "token_trie/token_trie.h"

namespace eliza {

struct CachedTrie {
    std::string model_id;
    TokenTrie trie;
};

// Least recently used, keyed by the payload's bytes and the vocabulary size it was checked against.
// Entries are shared: one that is evicted lives on for those who hold it. Safe from any thread.
class TrieCache {
public:
    static constexpr size_t default_capacity = 128;

    explicit TrieCache(size_t capacity = default_capacity) : capacity_(capacity) {}

    // The cached trie of this payload, or a new one. Throws Error as parse_payload and parse_rtkt do; a payload
    // that is refused is not remembered.
    std::shared_ptr<const CachedTrie> get(std::string_view payload, int32_t n_vocab);

    size_t size() const;

    // The cache of the process.
    static TrieCache & shared();

private:
    struct Entry {
        std::string payload;
        int32_t n_vocab;
        std::shared_ptr<const CachedTrie> trie;
    };
    struct Key {
        std::string_view payload;  // of the entry itself, whose address in the list does not change
        int32_t n_vocab;
        bool operator==(const Key & other) const { return n_vocab == other.n_vocab && payload == other.payload; }
    };
    struct KeyHash {
        size_t operator()(const Key & key) const {
            return std::hash<std::string_view>()(key.payload) ^ static_cast<size_t>(key.n_vocab);
        }
    };

    std::shared_ptr<const CachedTrie> find(const Key & key);

    const size_t capacity_;
    mutable std::mutex mutex_;
    std::list<Entry> entries_;  // most recently used first
    std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

}  // namespace eliza
