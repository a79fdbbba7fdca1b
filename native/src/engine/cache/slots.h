// The sequences of a KV cache that streams live in.
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

#include "llama.h"

namespace eliza {

// A text outside the KV cache's cells: its tokens, and their cells as llama.cpp writes them.
struct ParkedText {
    std::vector<llama_token> tokens;
    std::vector<uint8_t> state;
};

// A slot keeps what it holds when its stream closes, for the next one whose prompt begins the same way.
struct Slot {
    llama_seq_id id = 0;

    // The tokens in the KV cache, from position 0. Touched by whoever has the turn.
    std::vector<llama_token> cached;

    // How many of them a recurrent model can take back: those of the last pass but its first.
    size_t n_revocable = 0;

    // How many of them the stream in the slot still wants; 0 when there is none.
    std::atomic<size_t> n_wanted{0};

    // What a closed stream has left, once others' passes had gone by without a use for it; and how many have now.
    ParkedText parked;
    int32_t n_idle_passes = 0;

private:
    friend class SlotTable;

    bool is_taken_ = false;
    std::string cache_key_;
    uint64_t last_used_ = 0;
};

// Which slot a stream would like.
struct SlotWish {
    int32_t id = -1;                         // -1: any
    std::string cache_key;                   // of any, the one that had this name
    std::chrono::milliseconds most_wait{0};  // for one to become free
};

// Who is in which slot. Safe from any thread.
class SlotTable {
public:
    explicit SlotTable(int32_t n_slots);

    // Takes the slot with this number, or of all the free one named by the key, else one never used, else the
    // least recently used. Where it is taken, or all are, waits for its turn: first come, first served. Throws
    // Error (ELIZA_ERR_BUSY) once that has taken too long, or for a slot that there is not.
    Slot & acquire(const SlotWish & wish);
    void release(Slot & slot);

    // Whoever waits, or comes yet, gets an Error.
    void close();

    // The slot that holds tokens nobody wants, least recently used; nullptr if there is none.
    Slot * least_recently_used();

    // The same of those whose text is parked.
    Slot * least_recently_used_parked();

    std::deque<Slot> & all() { return slots_; }
    int32_t size() const { return static_cast<int32_t>(slots_.size()); }

private:
    Slot * find_free(const SlotWish & wish);
    Slot * least_recently_used(const std::function<bool(const Slot &)> & among);

    std::mutex mutex_;
    std::condition_variable released_;
    std::list<const SlotWish *> waiting_;  // in the order they came
    std::deque<Slot> slots_;               // where they are, they stay
    uint64_t clock_ = 0;
    bool is_closed_ = false;
};

}  // namespace eliza
