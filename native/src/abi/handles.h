// Handles: numbers that stand for objects. A number is never given out twice, so a handle that was
// closed is known to be, and nothing a caller passes is ever dereferenced.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace eliza {

template <typename Object, typename Handle>
class HandleTable {
public:
    Handle * add(std::shared_ptr<Object> object) {
        const std::lock_guard<std::mutex> lock(mutex_);
        next_ += 16;  // looks like an aligned pointer, and stays exact as a JavaScript number
        objects_.emplace(next_, std::move(object));
        return reinterpret_cast<Handle *>(next_);
    }

    std::shared_ptr<Object> find(Handle * handle) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
        return found != objects_.end() ? found->second : nullptr;
    }

    std::shared_ptr<Object> remove(Handle * handle) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
        if (found == objects_.end()) {
            return nullptr;
        }
        std::shared_ptr<Object> object = std::move(found->second);
        objects_.erase(found);
        return object;
    }

    template <typename Predicate>
    std::vector<Handle *> select(Predicate wanted) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::vector<Handle *> handles;
        for (const auto & [number, object] : objects_) {
            if (wanted(*object)) {
                handles.push_back(reinterpret_cast<Handle *>(number));
            }
        }
        return handles;
    }

private:
    mutable std::mutex mutex_;
    uintptr_t next_ = 0x1000;
    std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace eliza
