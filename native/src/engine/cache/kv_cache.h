// What a llama_context's KV cache holds: slots that streams live in, and lanes in which a slot forks.
//
// A pass attends to all cells in use, whether or not its streams want them. So what a closed stream has left in its
// slot is parked: it moves to the host's memory once some passes of others had no use for it, and comes back for a
// prompt that begins like it.
//
// Not safe from two threads: it is touched by whoever runs passes (engine/pass/pass_queue.h). Only the table
// of slots is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/cache/checked_state.h"
#include "engine/cache/slots.h"
#include "engine/model/model.h"
#include "llama.h"

namespace eliza {

// Which llama.cpp types K and V are stored as.
struct KvTypes {
    ggml_type k = GGML_TYPE_F16;
    ggml_type v = GGML_TYPE_F16;
};

// Throws Error that lists the names there are.
ggml_type kv_type_from_name(const std::string & option, const std::string & name);

class KvCache {
public:
    // Of a context whose first n_slots sequences are slots and the n_lanes behind them lanes. What no stream wants
    // is parked after so many passes of others, a long one being several; 0: never.
    KvCache(const Model & model, llama_context * context, KvTypes types, int32_t n_slots, int32_t n_lanes,
            int32_t park_after);

    SlotTable & slots() { return slots_; }

    // How keys and values are stored: what a state depends on.
    std::string describe() const;

    // Brings the slot to hold the longest beginning of the text that any slot holds or has parked, of `most` tokens
    // at the most, and nothing else. Returns its length.
    size_t take_prefix(Slot & slot, const llama_token * text, size_t most);

    // Drops what the slot holds from position n on. Returns how much is left, which is n or, where the model
    // cannot step back so far, 0.
    size_t truncate(Slot & slot, size_t n);

    // Frees cells that no open stream wants; false if there are none.
    bool make_room();

    // Another pass of so many tokens begins: what was idle for too many of them is parked.
    void count_pass(size_t n_tokens);

    // How many tokens are parked; no more than there are cells. Safe from any thread.
    size_t n_parked() const { return n_parked_.load(std::memory_order_relaxed); }

    // How many of the tokens decoded last can be taken back, wherever a text of n_batch tokens ends.
    int32_t most_revocable(int32_t n_batch) const;

    // What the slot holds, and back; restoring makes room by dropping what no stream wants. Throws Error
    // where it cannot; the slot is then empty.
    std::vector<uint8_t> copy_state(const Slot & slot);
    void restore_state(Slot & slot, const std::vector<uint8_t> & state, const std::vector<llama_token> & tokens);

    // ---- Lanes ------------------------------------------------------------------------------------

    int32_t n_free_lanes() const { return static_cast<int32_t>(free_lanes_.size()); }

    // Lanes that share what a slot holds now, or hold nothing; empty and free again at the end of the object's life.
    class Fork {
    public:
        Fork(KvCache & cache, const Slot * slot, int32_t n_lanes);
        ~Fork();
        Fork(const Fork &) = delete;
        Fork & operator=(const Fork &) = delete;

        const std::vector<llama_seq_id> & lanes() const { return lanes_; }

        // Has the slot go on with what a lane holds behind the slot's own end: those tokens.
        void keep(Slot & slot, llama_seq_id lane, const std::vector<llama_token> & tokens);

    private:
        KvCache & cache_;
        std::vector<llama_seq_id> lanes_;
    };

private:
    llama_memory_t memory() const { return llama_get_memory(context_); }

    bool park(Slot & slot);
    void count_parked();
    bool unpark(Slot & slot, const llama_token * text, size_t most, size_t n_in_cells);
    bool load_state(Slot & slot, const std::vector<llama_token> & tokens, const std::function<StateCheck()> & set);

    // True where what attention needs behind the slot's first n tokens is there.
    bool holds_window_of(const Slot & slot, size_t n) const;

    const Model & model_;
    llama_context * context_;
    const KvTypes types_;
    const int32_t park_after_;
    SlotTable slots_;
    std::vector<llama_seq_id> free_lanes_;
    std::atomic<size_t> n_parked_{0};
};

}  // namespace eliza
