// The one place where forward passes run: a llama_context, its KV cache cut into slots, at which
// several streams take turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/cache/slots.h"
#include "engine/choice/tree_batch.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "engine/pass/output_head.h"
#include "engine/pass/threads.h"
#include "engine/pass/turns.h"
#include "error.h"
#include "ggml-cpu.h"
#include "llama-cpp.h"
#include "sampling/logit_gather.h"

namespace eliza {

// Which llama.cpp types K and V are stored as.
struct KvTypes {
    ggml_type k = GGML_TYPE_F16;
    ggml_type v = GGML_TYPE_F16;
};

// What streams must have in common to share a decoder.
struct DecoderSettings {
    KvTypes types;
    int32_t n_snapshots = 0;  // of a recurrent state: that many of a pass's last tokens can be taken back

    friend bool operator<(const DecoderSettings & a, const DecoderSettings & b) {
        return std::tie(a.types.k, a.types.v, a.n_snapshots) < std::tie(b.types.k, b.types.v, b.n_snapshots);
    }
};

// Throws Error that lists the names there are.
ggml_type kv_type_from_name(const std::string & option, const std::string & name);

class ContextFull : public Error {
public:
    using Error::Error;
};

class Sequence;

// Measured costs of a pass, in microseconds.
struct PassCost {
    double pass = 0, token = 0, row = 0, lane = 0;

    double of(double tokens, double rows, double lanes) const {
        return pass + token * tokens + row * rows + lane * lanes;
    }
};

class Decoder {
public:
    Decoder(std::shared_ptr<Model> model, const Options & options, const DecoderSettings & settings);

    const Model & model() const { return *model_; }
    llama_context * context() const { return context_.get(); }

    // Has another context run its next passes, in this turn, on as many of our threads as n_weights weights
    // and n_tokens tokens are worth.
    void lend_threads(llama_context * context, uint64_t n_weights, size_t n_tokens);

    // How keys and values are stored: what a state depends on.
    std::string describe_cache() const;

    int32_t n_batch() const { return n_batch_; }
    int32_t n_ctx() const { return static_cast<int32_t>(llama_n_ctx(context_.get())); }

    SlotTable & slots() { return slots_; }
    TurnQueue & turns() { return turns_; }

    // How many tokens may be decoded on the chance that they follow: they may have to be taken back.
    int32_t most_ahead() const {
        return model_->is_recurrent() ? static_cast<int32_t>(llama_n_rs_seq(context_.get())) : n_batch_ - 1;
    }

    // While one lives, passes leave the hidden state behind every token where llama.cpp's drafters look for
    // it.
    class HiddenStates {
    public:
        explicit HiddenStates(Decoder & decoder) : n_readers_(decoder.n_readers_) { ++n_readers_; }
        ~HiddenStates() { --n_readers_; }
        HiddenStates(const HiddenStates &) = delete;
        HiddenStates & operator=(const HiddenStates &) = delete;

    private:
        std::atomic<int32_t> & n_readers_;
    };

    // What one tree batch may hold; no lanes where the model's memory cannot fork.
    TreeLimits tree_limits() const { return tree_limits_; }

    const OutputHead & head() const { return head_; }

    // True where the logits of so many tokens can be picked out before they are copied to the host.
    bool can_gather(size_t n_tokens) const { return may_gather_ && n_tokens <= LogitGather::most_width; }

    // All logits of a hidden state.
    void compute_logits(const Turn & turn, const HiddenState & hidden, std::vector<float> & out);

    // What the last pass brought to where tokens are chosen.
    int64_t bytes_copied() const { return bytes_copied_; }

    // What passes cost, measured on the first call. Nothing where there is no room to measure.
    std::optional<PassCost> pass_cost(const Turn & turn);

private:
    friend class Sequence;

    struct ThreadpoolDeleter {
        void operator()(ggml_threadpool * pool) { ggml_threadpool_free(pool); }
    };

    static bool is_cancelled(void * decoder);

    // Brings the slot's KV cache to hold the longest prefix of `tokens` without the last that any slot
    // holds, and nothing else. Returns its length.
    size_t reuse_prefix(Slot & slot, const std::vector<llama_token> & tokens);

    // Drops what the slot holds from position n on. Returns how much is left, which is n or, where
    // the model cannot step back so far, 0.
    size_t truncate(Slot & slot, size_t n);

    // True where what attention needs behind the slot's first n tokens is there.
    bool holds_window_of(const Slot & slot, size_t n) const;

    // Decodes n tokens of a slot from position `begin`, with logits after the last if `want_logits`: all,
    // or on the host only those of the tokens to gather. All or nothing: on failure the slot is as it
    // was. Throws Error.
    void decode(Slot & slot, const llama_token * tokens, int32_t n, int32_t begin, bool want_logits,
                TokenSpan gather = {nullptr, 0});

    // The same with all logits after each of the last n_rows tokens.
    std::vector<std::vector<float>> decode_rows(Slot & slot, const std::vector<llama_token> & tokens, int32_t begin,
                                                size_t n_rows);

    // What the slot's cache holds, and back; restoring makes room by dropping what no stream wants. Throws
    // Error where it cannot; the slot is then empty.
    std::vector<uint8_t> copy_state(const Slot & slot);
    void restore_state(Slot & slot, const std::vector<uint8_t> & state, size_t n_tokens);

    // Adds the tokens to the slot's cache in one pass; logits are wanted after the last n_rows.
    void decode_in_slot(Slot & slot, const llama_token * tokens, int32_t n, int32_t begin, int32_t n_rows);

    // Of a row that a pass with the present settings makes.
    size_t bytes_of_row() const;

    // Has the slot's passes to come gather these tokens, or none.
    void attach_gather(const Slot & slot, TokenSpan tokens);

    // The passes that run while one lives stop before the output head, if `stop`.
    class StopBeforeHead {
    public:
        StopBeforeHead(Decoder & decoder, bool stop) : head_(decoder.head_) { head_.stop_before(stop); }
        ~StopBeforeHead() { head_.stop_before(false); }
        StopBeforeHead(const StopBeforeHead &) = delete;
        StopBeforeHead & operator=(const StopBeforeHead &) = delete;

    private:
        OutputHead & head_;
    };

    // The same for a tree behind the slot's tokens, after `waiting` tokens that are decoded on the
    // way, all in one pass. on_row(place, row) gets each wanted row, place -1 being that of the last
    // waiting token; then kept() says to which place the slot's cache is to go on, -1 for none.
    // Without `whole`, the rows may be computed as far as they are asked for.
    void decode_tree(Slot & slot, const std::vector<llama_token> & waiting, const TreeBatch & tree, bool whole,
                     const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                     const std::function<int32_t()> & kept);

    // The llama_context's logits are about to change, or now belong to `owner`: whose they were keeps
    // a copy.
    void take_over_logits(Sequence * owner);
    void forget_logits_of(const Sequence * owner);
    bool holds_logits_of(const Sequence * sequence);

    // The threads that work on n_params weights and n_tokens tokens is worth.
    int32_t useful_threads(uint64_t n_params, int32_t n_tokens) const;

    // Those for such a pass now: fewer on a busy machine, of which this takes note.
    int32_t choose_threads(uint64_t n_params, int32_t n_tokens);

    // Runs llama_decode; makes room by dropping what no stream wants. Throws Error.
    void run(const llama_batch & batch, int32_t position);

    void calibrate();  // sets pass_cost_

    // Frees cells that no open stream wants; false if there are none.
    bool make_room();

    std::shared_ptr<Model> model_;
    KvTypes kv_types_;
    int32_t n_batch_;
    int32_t n_threads_;
    bool adapt_threads_;  // to the size of each pass and to the machine; not to a number the user set
    BusyMachineGuard busy_guard_;
    std::unique_ptr<ggml_threadpool, ThreadpoolDeleter> threadpool_;  // outlives the context
    OutputHead head_;                                                 // outlives the context
    std::map<llama_seq_id, std::unique_ptr<LogitGather>> gathers_;    // by slot; outlive the context
    bool may_gather_ = false;
    std::atomic<int32_t> n_readers_{0};  // of hidden states
    bool keeps_hidden_states_ = false;
    uint32_t n_gathered_ = 0;  // logits of a row that are copied; 0: all
    int64_t bytes_copied_ = 0;
    llama_context_ptr context_;
    SlotTable slots_;
    TurnQueue turns_;
    TreeLimits tree_limits_{0, 0, 0};
    std::optional<PassCost> pass_cost_;

    std::mutex owner_mutex_;
    Sequence * logits_owner_ = nullptr;  // whose logits the llama_context holds
};

}  // namespace eliza
