// Handles: numbers that stand for objects. A number is never reused, so a closed handle is recognized, and the library
// never dereferences what a caller passes.
//
// A forked process has copies of all objects, but not of the threads that some objects own and wait for when they are
// destroyed. Therefore a table finds and destroys only the objects of its own process. Tables are never destroyed,
// because threads may still be inside the library when the process ends.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/process.h"

namespace eliza {

template <typename Object, typename Handle>
class HandleTable {
public:
    HandleTable() = default;
    HandleTable(const HandleTable &) = delete;
    HandleTable & operator=(const HandleTable &) = delete;

    Handle * add(std::shared_ptr<Object> object) {
        const std::lock_guard<GlobalMutex> lock(mutex_);
        next_ += 16;  // looks like an aligned pointer, and is exact as a JavaScript number
        objects_.emplace(next_, Entry{std::move(object), fork_depth()});
        return reinterpret_cast<Handle *>(next_);
    }

    std::shared_ptr<Object> find(Handle * handle) const {
        const std::lock_guard<GlobalMutex> lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
        return found != objects_.end() && found->second.is_own() ? found->second.object : nullptr;
    }

    // Returns true if the handle's object belongs to an ancestor of this forked process.
    bool is_of_parent(Handle * handle) const {
        const std::lock_guard<GlobalMutex> lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
        return found != objects_.end() && !found->second.is_own();
    }

    std::shared_ptr<Object> remove(Handle * handle) {
        const std::lock_guard<GlobalMutex> lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
        if (found == objects_.end() || !found->second.is_own()) {
            return nullptr;
        }
        std::shared_ptr<Object> object = std::move(found->second.object);
        objects_.erase(found);
        return object;
    }

    template <typename Predicate>
    std::vector<Handle *> select(Predicate wanted) const {
        const std::lock_guard<GlobalMutex> lock(mutex_);
        std::vector<Handle *> handles;
        for (const auto & [number, entry] : objects_) {
            if (entry.is_own() && wanted(*entry.object)) {
                handles.push_back(reinterpret_cast<Handle *>(number));
            }
        }
        return handles;
    }

private:
    struct Entry {
        std::shared_ptr<Object> object;
        uint32_t process;  // fork_depth() of the process that created it

        bool is_own() const { return process == fork_depth(); }
    };

    mutable GlobalMutex mutex_;
    uintptr_t next_ = 0x1000;
    std::unordered_map<uintptr_t, Entry> objects_;
};

}  // namespace eliza
