#include "engine/cache/slots.h"

#include "error.h"

namespace eliza {

SlotTable::SlotTable(int32_t n_slots) {
    for (int32_t id = 0; id < n_slots; ++id) {
        slots_.emplace_back().id = id;
    }
}

Slot & SlotTable::acquire(int32_t slot_id, const std::string & cache_key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (slot_id < -1 || slot_id >= size()) {
        throw invalid_argument("slot_id " + std::to_string(slot_id) + " is not -1 or 0 to " +
                               std::to_string(size() - 1) + " (option n_slots)");
    }
    Slot * chosen = nullptr;
    if (slot_id >= 0) {
        chosen = &slots_[static_cast<size_t>(slot_id)];
        if (chosen->is_taken_) {
            throw invalid_argument("slot " + std::to_string(slot_id) + " is in use by another open stream");
        }
    } else {
        // From the back: who names slots begins at 0.
        for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
            if (slot->is_taken_) {
                continue;
            }
            if (!cache_key.empty() && slot->cache_key_ == cache_key) {
                chosen = &*slot;
                break;
            }
            if (chosen == nullptr || slot->last_used_ < chosen->last_used_) {
                chosen = &*slot;
            }
        }
        if (chosen == nullptr) {
            throw invalid_argument("all " + std::to_string(size()) +
                                   " slots are in use by open streams (option n_slots)");
        }
    }
    chosen->is_taken_ = true;
    chosen->cache_key_ = cache_key;
    chosen->last_used_ = ++clock_;
    return *chosen;
}

void SlotTable::release(Slot & slot) {
    slot.n_wanted = 0;
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.is_taken_ = false;
    slot.last_used_ = ++clock_;
}

Slot * SlotTable::least_wanted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot * oldest = nullptr;
    for (Slot & slot : slots_) {
        if (slot.cached.size() > slot.n_wanted && (oldest == nullptr || slot.last_used_ < oldest->last_used_)) {
            oldest = &slot;
        }
    }
    return oldest;
}

}  // namespace eliza
