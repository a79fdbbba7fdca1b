// Runs the forward passes of a llama_context.
//
// Used by one thread at a time, the leader of the queue (engine/pass/pass_queue.h), except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/compute_threads.h"
#include "engine/base/options.h"
#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/pass/batch.h"
#include "engine/pass/layer_rows.h"
#include "engine/pass/output_head.h"
#include "engine/pass/pass_cost.h"
#include "llama-cpp.h"

namespace eliza {

class PassRunner {
public:
    // Throws an Error if the context cannot be created, or the model cannot generate text.
    PassRunner(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads, const Options & options,
               KvTypes types, int32_t n_snapshots, int32_t n_sequences);
    PassRunner(const PassRunner &) = delete;
    PassRunner & operator=(const PassRunner &) = delete;

    const Model & model() const { return *model_; }
    llama_context * context() const { return context_.get(); }
    int32_t n_batch() const { return n_batch_; }
    const OutputHead & head() const { return head_; }

    // Returns how many rows of logits fit into the memory for them. A pass with a tree may compute one row more.
    static int32_t max_rows(const Model & model);
    int32_t max_rows() const { return max_rows_; }

    // The current costs of a pass, and whether they are more than an assumption. Safe from any thread.
    PassCost cost() const { return times_.cost(head_.can_stop()); }
    bool knows_cost() const { return times_.are_known(); }

    // Sets the parameters of a context that reads the KV cache of this one.
    void set_layout_of_cells(llama_context_params & params) const;

    // The results of llama_decode that are not an Error. After `stopped`, the caller must remove the pass's tokens from
    // the cache.
    enum Result : int32_t { done = 0, no_room = 1, stopped = 2 };

    // The hidden states that a pass copies. With `stops`, it ends after the deepest layer. If that leaves out layers,
    // the tokens have no keys and values there, so the caller must remove them from the cache.
    struct Layers {
        std::vector<int32_t> wanted{};
        bool stops = false;
    };

    bool leaves_out_layers(const Layers & layers) const;

    // Runs llama_decode and waits until its results are complete.
    Result run(Batch & batch, Rows rows, const Layers & layers);
    Result run(Batch & batch, Rows rows) { return run(batch, rows, Layers()); }

    // Returns the n-th row of the last pass, counted from 0, which belongs to the token with index `place_in_batch`.
    // The row is valid until the next pass.
    LogitsRow take_row(size_t n, int32_t place_in_batch);

    // Returns the hidden state of the token of that row in a wanted layer. Throws an Error if llama.cpp's graph of this
    // architecture does not name it.
    const float * hidden_row(int32_t layer, size_t n, int32_t place_in_batch) const;

    // Returns how many bytes of each row of the last pass were copied to the host.
    size_t bytes_of_row() const;

    // Stops the running pass. Safe from any thread.
    void stop() { is_stopped_.store(true, std::memory_order_relaxed); }
    void clear_stop() { is_stopped_.store(false, std::memory_order_relaxed); }

    // Computes all logits of some hidden states.
    void compute_logits(const std::vector<const HiddenState *> & hidden, const std::vector<std::vector<float> *> & out);

    ComputeThreads & threads() { return *threads_; }

    // While an object of this class exists, passes store the hidden state of every token for llama.cpp's drafters.
    class HiddenStateReader {
    public:
        explicit HiddenStateReader(PassRunner & runner) : n_readers_(runner.n_readers_) { ++n_readers_; }
        ~HiddenStateReader() { --n_readers_; }
        HiddenStateReader(const HiddenStateReader &) = delete;
        HiddenStateReader & operator=(const HiddenStateReader &) = delete;

    private:
        std::atomic<int32_t> & n_readers_;
    };

private:
    static bool is_stopped(void * runner);
    static bool on_tensor(ggml_tensor * tensor, bool ask, void * runner);
    void watch_tensors(bool watch);

    std::shared_ptr<Model> model_;
    const bool all_rows_;  // every token of a batch must want logits, which some architectures require
    const Model::TokenRange image_tokens_;
    const int32_t max_rows_;
    int32_t n_batch_;
    const KvTypes types_;
    const std::shared_ptr<ComputeThreads> threads_;  // must outlive the context, like the next two members
    OutputHead head_;
    LayerRows layers_;
    PassTimes times_;
    bool always_watches_ = false;        // passes may stop before the output head
    LayerRows::Batch last_;              // the last pass
    std::atomic<int32_t> n_readers_{0};  // HiddenStateReader objects
    bool keeps_hidden_states_ = false;
    bool has_hidden_rows_ = false;  // the last pass stopped before the output head
    std::atomic<bool> is_stopped_{false};
    llama_context_ptr context_;
};

}  // namespace eliza
