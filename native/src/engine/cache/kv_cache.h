// The contents of a llama_context's KV cache: slots, one per stream, texts that are kept for later prompts, and lanes,
// which are temporary branches of a slot. All are sequences of llama.cpp, and share the cells of a common beginning. So
// the texts form a radix tree, and cells, not slots, limit how many of them stay.
//
// If the cache is full, the tokens of closed streams, and of open streams that have to wait, are parked: they are moved
// to host memory, and restored for a prompt that begins with the same tokens.
//
// Not thread-safe: only the thread that runs forward passes may use it (engine/pass/pass_queue.h). The table of slots
// is thread-safe.
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

// The llama.cpp types in which K and V are stored.
struct KvTypes {
    ggml_type k = GGML_TYPE_F16;
    ggml_type v = GGML_TYPE_F16;
};

// Throws an Error that lists the valid names.
ggml_type kv_type_from_name(const std::string & option, const std::string & name);

class KvCache {
public:
    // How many sequences of the context are slots, kept texts and lanes, in this order.
    struct Sequences {
        int32_t n_slots, n_kept, n_lanes;
        int32_t n_all() const { return n_slots + n_kept + n_lanes; }
    };

    // With `parks` false, tokens are dropped instead of parked.
    KvCache(const Model & model, llama_context * context, KvTypes types, Sequences sequences, bool parks);

    SlotTable & slots() { return slots_; }

    // Returns whether a cell can belong to several slots. If not, llama.cpp splits a batch whose sequences have
    // different lengths, reads all weights for each part, and leaves hidden states in the order of the parts.
    bool shares_cells() const { return !model_.is_recurrent(); }

    // Describes how keys and values are stored. A saved state can only be restored into a cache with the same
    // description.
    std::string describe() const;

    // Fills the slot with the longest prefix of the text that is in the cache or parked, at most `most` tokens, and
    // removes everything else from the slot. What it removes is kept, if it is long. Returns the length of the prefix.
    size_t take_prefix(Slot & slot, const llama_token * text, size_t most);

    // Removes the slot's tokens from position n on. Returns the number that are left: n, or 0 if the model cannot step
    // back to n.
    size_t truncate(Slot & slot, size_t n);

    // Empties all slots. Streams decode their tokens again when they need them.
    void clear();

    // Frees cells that no open stream needs. Returns false if there are none.
    bool make_room();

    // Removes all tokens of a slot. Its stream decodes them again, or has them restored, when it needs them.
    void evict(Slot & slot);

    // Returns how many cells the open streams need if this slot holds `n` tokens of `text`, and texts with the same
    // beginning share cells. They may need more: a recurrent model shares none, and a restored text has its own.
    size_t n_needed_cells(const Slot & slot, const llama_token * text, size_t n) const;

    // Returns how many cells other slots hold for the open streams, if no cells are shared.
    size_t n_wanted_elsewhere(const Slot & slot) const;

    // The number of parked tokens, at most the number of cells. Safe from any thread.
    size_t n_parked() const { return n_parked_.load(std::memory_order_relaxed); }

    // Returns how many of the last decoded tokens can be removed again: for a recurrent model, the number of its
    // snapshots; otherwise n_batch - 1.
    int32_t most_revocable(int32_t n_batch) const;

    // Copies the state of a slot, and restores it. Restoring makes room by removing tokens that no stream needs. On
    // failure throws an Error, and the slot is empty.
    std::vector<uint8_t> copy_state(const Slot & slot);
    void restore_state(Slot & slot, const std::vector<uint8_t> & state, const std::vector<llama_token> & tokens);

    // ---- Lanes ------------------------------------------------------------------------------------

    int32_t n_free_lanes() const { return static_cast<int32_t>(free_lanes_.size()); }

    // Returns how many microseconds it takes to make and free a lane after a text of n_cells tokens, according to the
    // forks so far; 0 if there were none. Safe from any thread.
    double lane_us(size_t n_cells) const;

    // Lanes that begin as copies of a slot, or empty if `slot` is null. The destructor clears and frees them.
    class Fork {
    public:
        Fork(KvCache & cache, const Slot * slot, int32_t n_lanes);
        ~Fork();
        Fork(const Fork &) = delete;
        Fork & operator=(const Fork &) = delete;

        const std::vector<llama_seq_id> & lanes() const { return lanes_; }

        // Appends to the slot the tokens that the lane has decoded since the fork.
        void keep(Slot & slot, llama_seq_id lane, const std::vector<llama_token> & tokens);

    private:
        KvCache & cache_;
        std::vector<llama_seq_id> lanes_;
        const size_t n_cells_;
        int64_t us_ = 0;  // that the constructor took
    };

private:
    llama_memory_t memory() const { return llama_get_memory(context_); }

    bool holds_elsewhere(const Slot & slot, size_t n) const;
    void keep_end(Slot & slot, size_t n_left);
    bool drop_end();
    bool park(Slot & slot);
    void count_parked();
    bool unpark(Slot & slot, const llama_token * text, size_t most, size_t n_in_cells);
    bool load_state(Slot & slot, const std::vector<llama_token> & tokens, const std::function<StateCheck()> & set);

    // Returns true if the cells that attention needs after the slot's first n tokens are still there.
    bool holds_window_of(const Slot & slot, size_t n) const;

    const Model & model_;
    llama_context * context_;
    const KvTypes types_;
    const bool parks_;
    SlotTable slots_;
    std::vector<llama_seq_id> free_lanes_;
    std::atomic<size_t> n_parked_{0};
    std::atomic<double> us_a_lane_cell_{0.0};  // a moving average
};

}  // namespace eliza
