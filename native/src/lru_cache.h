// A cache of shared values that are expensive to compute. It drops the least recently used entries first. Safe from any
// thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace eliza {

// Entries are looked up by a View, so that a long key need not be copied for a lookup. A Key can be constructed from a
// View, and a View from a `const Key &`, whose memory it may borrow. Value::size_bytes() returns the size of a value
// without its key.
//
// A cache that a whole process shares takes GlobalMutex, which a forked child can lock.
template <typename Key, typename Value, typename View = Key, typename Hash = std::hash<View>,
          typename Mutex = std::mutex>
class LruCache {
public:
    using Shared = std::shared_ptr<const Value>;

    LruCache(size_t most_entries, size_t most_bytes) : most_entries_(most_entries), most_bytes_(most_bytes) {}

    // Returns the value for the key, and calls `make()` if there is none. An exception from make() is passed on, and
    // nothing is cached. A dropped entry stays alive while callers hold it.
    template <typename Make>
    Shared get(const View & key, const Make & make) {
        if (Shared known = find(key)) {
            return known;
        }
        Shared made = make();  // outside the lock, so that a slow make() does not block other threads
        const std::lock_guard<Mutex> lock(mutex_);
        if (const auto found = index_.find(key); found != index_.end()) {
            return found->second->value;  // another thread has made the same value in the meantime
        }
        entries_.push_front({Key(key), made, made->size_bytes() + bytes_of(key)});
        try {
            index_.emplace(View(std::as_const(entries_.front().key)), entries_.begin());
        } catch (...) {
            entries_.pop_front();
            throw;
        }
        n_bytes_ += entries_.front().n_bytes;
        while (entries_.size() > 1 && (entries_.size() > most_entries_ || n_bytes_ > most_bytes_)) {
            index_.erase(View(std::as_const(entries_.back().key)));
            n_bytes_ -= entries_.back().n_bytes;
            entries_.pop_back();
        }
        return made;
    }

    size_t size() const {
        const std::lock_guard<Mutex> lock(mutex_);
        return entries_.size();
    }
    size_t size_bytes() const {
        const std::lock_guard<Mutex> lock(mutex_);
        return n_bytes_;
    }

private:
    struct Entry {
        Key key;
        Shared value;
        size_t n_bytes;
    };
    using Entries = std::list<Entry>;

    // The size of a key that is a string or a number, or has a size_bytes() of its own.
    static size_t bytes_of(const View & key) {
        if constexpr (std::is_convertible_v<const View &, std::string_view>) {
            return std::string_view(key).size();
        } else if constexpr (std::is_arithmetic_v<View>) {
            return sizeof key;
        } else {
            return key.size_bytes();
        }
    }

    Shared find(const View & key) {
        const std::lock_guard<Mutex> lock(mutex_);
        const auto found = index_.find(key);
        if (found == index_.end()) {
            return nullptr;
        }
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->value;
    }

    const size_t most_entries_, most_bytes_;
    size_t n_bytes_ = 0;
    mutable Mutex mutex_;
    Entries entries_;  // most recently used first; iterators stay valid
    std::unordered_map<View, typename Entries::iterator, Hash> index_;
};

}  // namespace eliza
