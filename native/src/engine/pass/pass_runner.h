// Runs forward passes: a llama_context, the threads it computes with, and its output head.
//
// Not safe from two threads: whoever runs passes (engine/pass/pass_queue.h) uses it alone, but for stop().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "engine/pass/batch.h"
#include "engine/pass/compute_threads.h"
#include "engine/pass/output_head.h"
#include "llama-cpp.h"
#include "sampling/logit_gather.h"

namespace eliza {

class PassRunner {
public:
    // Throws Error where there is no room for such a context, or the model cannot go on with a text.
    PassRunner(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads, const Options & options,
               KvTypes types, int32_t n_snapshots, int32_t n_lanes);
    PassRunner(const PassRunner &) = delete;
    PassRunner & operator=(const PassRunner &) = delete;

    const Model & model() const { return *model_; }
    llama_context * context() const { return context_.get(); }
    int32_t n_batch() const { return n_batch_; }
    const OutputHead & head() const { return head_; }

    // How much of the rows of a pass is needed.
    struct Wanted {
        bool whole = true;  // or else only logits of single tokens: the pass may stop before the output head
        std::vector<std::pair<llama_seq_id, TokenSpan>> gather;  // or only these, each of a sequence
    };

    // What llama_decode returns; all else is an Error. What was stopped has to be taken back.
    enum Result : int32_t { done = 0, no_room = 1, stopped = 2 };

    // Runs llama_decode and waits for its end.
    Result run(Batch & batch, const Wanted & wanted);

    // The row of the last pass that belongs to a token of its batch: the n-th that wanted one. Valid until the
    // next pass.
    LogitsRow take_row(size_t n, int32_t place_in_batch);

    // Of a row of the last pass, what was copied to where tokens are chosen.
    size_t bytes_of_row() const;

    // Has the pass that is running come to its end. Safe from any thread.
    void stop() { is_stopped_.store(true, std::memory_order_relaxed); }
    void clear_stop() { is_stopped_.store(false, std::memory_order_relaxed); }

    // All logits of some hidden states.
    void compute_logits(const std::vector<const HiddenState *> & hidden, const std::vector<std::vector<float> *> & out);

    // True where the logits of so many tokens can be picked out before they are copied to the host.
    bool can_gather(size_t n_tokens) const { return may_gather_ && n_tokens <= LogitGather::most_width; }

    ComputeThreads & threads() { return *threads_; }

    // While one lives, passes leave the hidden state behind every token where llama.cpp's drafters look for it.
    class HiddenStates {
    public:
        explicit HiddenStates(PassRunner & runner) : n_readers_(runner.n_readers_) { ++n_readers_; }
        ~HiddenStates() { --n_readers_; }
        HiddenStates(const HiddenStates &) = delete;
        HiddenStates & operator=(const HiddenStates &) = delete;

    private:
        std::atomic<int32_t> & n_readers_;
    };

private:
    static bool is_stopped(void * runner);

    // Has the passes to come gather what is wanted, or none.
    void attach_gathers(const Wanted & wanted);

    std::shared_ptr<Model> model_;
    const bool all_rows_;  // every token of a batch must want logits
    const Model::TokenRange image_tokens_;
    int32_t n_batch_;
    const std::shared_ptr<ComputeThreads> threads_;  // outlive the context, as do the next two
    OutputHead head_;
    std::map<llama_seq_id, std::unique_ptr<LogitGather>> gathers_;
    bool may_gather_ = false;
    std::atomic<int32_t> n_readers_{0};  // of hidden states
    bool keeps_hidden_states_ = false;
    enum class RowKind { whole, hidden, gathered };
    RowKind row_kind_ = RowKind::whole;  // of the last pass
    uint32_t n_gathered_ = 0;            // logits of a row of it
    std::atomic<bool> is_stopped_{false};
    llama_context_ptr context_;
};

}  // namespace eliza
