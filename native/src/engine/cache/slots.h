// The slots of a KV cache: each open stream has one. Texts that their slot has lost to another prompt are kept in
// further sequences, as long as there is room.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "cancel_flag.h"
#include "llama.h"

namespace eliza {

// Tokens that have been moved out of the KV cache, with their cells as llama.cpp serializes them.
struct ParkedText {
    std::vector<llama_token> tokens;
    std::vector<uint8_t> state;
};

// When a stream closes, its slot keeps the tokens for the next stream whose prompt begins the same way.
struct Slot {
    llama_seq_id id = 0;

    // The tokens in the KV cache, from position 0. Only the thread that runs passes uses this.
    std::vector<llama_token> cached;

    // The number of last tokens that a recurrent model can remove again: the tokens of its last pass, except the first.
    size_t n_revocable = 0;

    // How many of the tokens other texts have begun with. The rest of a kept text goes first when cells run out.
    size_t n_shared = 0;

    // The number of tokens that the slot's stream still needs; 0 without a stream.
    std::atomic<size_t> n_wanted{0};

    // Tokens that were moved out of the cache.
    ParkedText parked;

    // Orders the open streams: streams that were opened later have larger numbers. Set by SlotTable::acquire().
    std::atomic<uint64_t> opened{0};

private:
    friend class SlotTable;

    bool is_taken_ = false;
    std::string cache_key_;
    uint64_t last_used_ = 0;
};

// A stream's request for a slot.
struct SlotWish {
    int32_t id = -1;                         // -1: any
    std::string cache_key;                   // with id -1: prefer the slot with this name
    std::chrono::milliseconds most_wait{0};  // maximum wait for a free slot
};

// The assignment of slots to streams. Safe from any thread.
class SlotTable {
public:
    explicit SlotTable(int32_t n_slots, int32_t n_kept = 0);

    // Takes the requested slot. With id -1 it takes the free slot with the requested name; otherwise a slot that was
    // never used; otherwise the least recently used slot. If no suitable slot is free, waits in the order of arrival.
    // Throws an Error (ELIZA_ERR_BUSY) when the wait exceeds the limit, or an Error if the slot does not exist or
    // `cancelled` is set.
    Slot & acquire(const SlotWish & wish, CancelFlag & cancelled);

    // Makes the waiting calls of acquire() look at their cancel flags.
    void wake_cancelled();
    void release(Slot & slot);

    // Makes all waiting and future calls of acquire() fail with an Error.
    void close();

    // Returns the least recently used slot or kept text with tokens that no stream needs, or nullptr.
    Slot * least_recently_used();

    // Returns the least recently used of those kept texts, or nullptr.
    Slot * least_recently_used_text(const std::function<bool(const Slot &)> & among);

    // Makes this the most recently used one.
    void touch(Slot & slot);

    // Returns the slot of the open stream that was opened last, among the slots with tokens in the cache except one;
    // nullptr if there is none.
    Slot * last_opened(const Slot & except);

    // The number of open streams.
    int32_t n_taken();

    // Returns the least recently used slot or kept text with parked tokens, or nullptr.
    Slot * least_recently_used_parked();

    // The slots, followed by the kept texts.
    std::deque<Slot> & all() { return slots_; }
    const std::deque<Slot> & all() const { return slots_; }

    // The number of slots.
    int32_t size() const { return n_slots_; }

    bool is_kept_text(const Slot & slot) const { return slot.id >= n_slots_; }

private:
    Slot * find_free(const SlotWish & wish);
    Slot * least_recently_used(const std::function<bool(const Slot &)> & among);

    const int32_t n_slots_;
    std::mutex mutex_;
    std::condition_variable released_;
    std::list<const SlotWish *> waiting_;  // in the order of arrival
    std::deque<Slot> slots_;               // a deque, so that slots keep their addresses
    uint64_t clock_ = 0;
    bool is_closed_ = false;
};

}  // namespace eliza
