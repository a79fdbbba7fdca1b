// Values that are expensive to make, shared by all who ask for the same, forgotten when not asked for
// longest. Safe from any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace eliza {

// Entries are found by a View, so that a long key need not be copied to be looked up. A Key is made from
// a View, and a View from a `const Key &`, from which it may borrow.
template <typename Key, typename Value, typename View = Key, typename Hash = std::hash<View>>
class LruCache {
public:
    using Shared = std::shared_ptr<const Value>;

    explicit LruCache(size_t capacity) : capacity_(capacity) {}

    // The value under the key, made by `make()` if it is not here. What make() throws goes through, and
    // nothing is remembered. An entry that is dropped lives on for those who hold it.
    template <typename Make>
    Shared get(const View & key, const Make & make) {
        if (Shared known = find(key)) {
            return known;
        }
        Shared made = make();  // outside the lock: what takes long does not hold up the other threads
        const std::lock_guard<std::mutex> lock(mutex_);
        if (const auto found = index_.find(key); found != index_.end()) {
            return found->second->second;  // another thread made the same one meanwhile
        }
        entries_.emplace_front(Key(key), std::move(made));
        index_.emplace(View(std::as_const(entries_.front().first)), entries_.begin());
        if (entries_.size() > capacity_) {
            index_.erase(View(std::as_const(entries_.back().first)));
            entries_.pop_back();
        }
        return entries_.front().second;
    }

    size_t size() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return entries_.size();
    }

private:
    using Entries = std::list<std::pair<Key, Shared>>;

    Shared find(const View & key) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = index_.find(key);
        if (found == index_.end()) {
            return nullptr;
        }
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
    }

    const size_t capacity_;
    mutable std::mutex mutex_;
    Entries entries_;  // most recently used first; where an entry is, it stays
    std::unordered_map<View, typename Entries::iterator, Hash> index_;
};

}  // namespace eliza
