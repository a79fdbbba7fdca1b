#include "engine/cache/slots.h"

#include <algorithm>
#include <utility>

#include "error.h"

namespace eliza {

SlotTable::SlotTable(int32_t n_slots, int32_t n_kept) : n_slots_(n_slots) {
    for (int32_t id = 0; id < n_slots + n_kept; ++id) {
        slots_.emplace_back().id = id;
    }
}

Slot & SlotTable::acquire(const SlotWish & wish, CancelFlag & cancelled) {
    if (wish.id < -1 || wish.id >= size()) {
        throw invalid_argument("slot_id: expected -1 (any) or 0 to " + std::to_string(size() - 1) +
                               " (option n_slots), got " + std::to_string(wish.id));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const auto place = waiting_.insert(waiting_.end(), &wish);
    Slot * chosen = nullptr;
    // Earlier requests go first, unless they wait for a different slot.
    const auto is_my_turn = [&] {
        chosen = find_free(wish);
        return is_closed_ || cancelled.is_set() ||
               (chosen != nullptr && std::none_of(waiting_.begin(), place, [&](const SlotWish * earlier) {
                    return earlier->id == -1 || earlier->id == chosen->id;
                }));
    };
    const bool has_it = released_.wait_for(lock, wish.most_wait, is_my_turn);
    waiting_.erase(place);
    released_.notify_all();  // Later requests no longer wait for this one.
    if (is_closed_) {
        throw invalid_argument("the context is destroyed");
    }
    cancelled.throw_if_set();
    if (!has_it) {
        const std::string waited =
            wish.most_wait.count() > 0 ? " after " + std::to_string(wish.most_wait.count()) + " ms" : "";
        throw Error(ELIZA_ERR_BUSY, wish.id >= 0
                                        ? "slot " + std::to_string(wish.id) + " is in use by another open stream" +
                                              waited + " (option slot_wait_ms)"
                                        : "all " + std::to_string(size()) + " slots are in use by open streams" +
                                              waited + " (options n_slots, slot_wait_ms)");
    }
    chosen->cache_key_ = wish.cache_key;  // first, because it can fail
    chosen->is_taken_ = true;
    chosen->last_used_ = chosen->opened = ++clock_;
    return *chosen;
}

Slot * SlotTable::find_free(const SlotWish & wish) {
    if (wish.id >= 0) {
        Slot & slot = slots_[static_cast<size_t>(wish.id)];
        return slot.is_taken_ ? nullptr : &slot;
    }
    Slot * chosen = nullptr;
    // Search from the highest index, because clients that name slots explicitly start at 0.
    for (int32_t id = n_slots_; id-- > 0;) {
        Slot & slot = slots_[static_cast<size_t>(id)];
        if (slot.is_taken_) {
            continue;
        }
        if (!wish.cache_key.empty() && slot.cache_key_ == wish.cache_key) {
            return &slot;
        }
        if (chosen == nullptr || slot.last_used_ < chosen->last_used_) {
            chosen = &slot;
        }
    }
    return chosen;
}

void SlotTable::release(Slot & slot) {
    slot.n_wanted = 0;
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.is_taken_ = false;
    slot.last_used_ = ++clock_;
    released_.notify_all();
}

void SlotTable::wake_cancelled() {
    // Under the lock: a thread that has just looked at its flag and does not wait yet would miss the notification.
    const std::lock_guard<std::mutex> lock(mutex_);
    released_.notify_all();
}

void SlotTable::close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    released_.notify_all();
}

Slot * SlotTable::least_recently_used() {
    return least_recently_used([](const Slot & slot) { return slot.cached.size() > slot.n_wanted; });
}

Slot * SlotTable::least_recently_used_text(const std::function<bool(const Slot &)> & among) {
    return least_recently_used([&](const Slot & slot) { return is_kept_text(slot) && among(slot); });
}

void SlotTable::touch(Slot & slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.last_used_ = ++clock_;
}

Slot * SlotTable::least_recently_used_parked() {
    return least_recently_used([](const Slot & slot) { return !slot.parked.tokens.empty(); });
}

Slot * SlotTable::last_opened(const Slot & except) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot * last = nullptr;
    for (Slot & slot : slots_) {
        const bool holds_tokens = slot.is_taken_ && &slot != &except && !slot.cached.empty();
        if (holds_tokens && (last == nullptr || slot.opened > last->opened)) {
            last = &slot;
        }
    }
    return last;
}

int32_t SlotTable::n_taken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int32_t>(
        std::count_if(slots_.begin(), slots_.end(), [](const Slot & slot) { return slot.is_taken_; }));
}

Slot * SlotTable::least_recently_used(const std::function<bool(const Slot &)> & among) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot * oldest = nullptr;
    for (Slot & slot : slots_) {
        if (among(slot) && (oldest == nullptr || slot.last_used_ < oldest->last_used_)) {
            oldest = &slot;
        }
    }
    return oldest;
}

}  // namespace eliza
