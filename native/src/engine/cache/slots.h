// The sequences of a KV cache that streams live in.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "llama.h"

namespace eliza {

// A slot keeps what it holds when its stream closes, for the next one whose prompt begins the same way.
struct Slot {
    llama_seq_id id = 0;

    // The tokens in the KV cache, from position 0. Touched by whoever has the turn.
    std::vector<llama_token> cached;

    // How many of them a recurrent model can take back: those of the last pass but its first.
    size_t n_revocable = 0;

    // How many of them the stream in the slot still wants; 0 when there is none.
    std::atomic<size_t> n_wanted{0};

private:
    friend class SlotTable;

    bool is_taken_ = false;
    std::string cache_key_;
    uint64_t last_used_ = 0;
};

// Who is in which slot. Safe from any thread.
class SlotTable {
public:
    explicit SlotTable(int32_t n_slots);

    // Takes the slot with this number, or for -1: the free one named by the key, else one never
    // used, else the least recently used. Throws Error when it is taken, or all are.
    Slot & acquire(int32_t slot_id, const std::string & cache_key);
    void release(Slot & slot);

    // The slot that holds tokens nobody wants, least recently used; nullptr if there is none.
    Slot * least_wanted();

    std::deque<Slot> & all() { return slots_; }
    int32_t size() const { return static_cast<int32_t>(slots_.size()); }

private:
    std::mutex mutex_;
    std::deque<Slot> slots_;  // where they are, they stay
    uint64_t clock_ = 0;
};

}  // namespace eliza
