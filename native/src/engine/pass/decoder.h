// One llama_context that streams share, with its KV cache, its forward passes and the queue of requests for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "engine/base/options.h"
#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/pass/pass_cost.h"
#include "engine/pass/pass_queue.h"
#include "engine/pass/pass_runner.h"
#include "engine/pass/tree_batch.h"

namespace eliza {

// The settings that all streams of a decoder have in common.
struct DecoderSettings {
    KvTypes types;
    int32_t n_snapshots = 0;  // how many of a pass's last tokens can be removed again from a recurrent state

    friend bool operator<(const DecoderSettings & a, const DecoderSettings & b) {
        return std::tie(a.types.k, a.types.v, a.n_snapshots) < std::tie(b.types.k, b.types.v, b.n_snapshots);
    }
};

class Decoder {
public:
    // Throws an Error if the context cannot be created, or the model cannot generate text.
    Decoder(const std::shared_ptr<Model> & model, std::shared_ptr<ComputeThreads> threads, const Options & options,
            const DecoderSettings & settings);

    // Returns how the sequences of a context with this many slots are used.
    static KvCache::Sequences sequences_for(const Model & model, int32_t n_slots);

    const Model & model() const { return runner_.model(); }
    PassRunner & runner() { return runner_; }
    KvCache & cache() { return cache_; }
    PassQueue & queue() { return queue_; }

    llama_context * context() const { return runner_.context(); }
    int32_t n_batch() const { return runner_.n_batch(); }
    int32_t n_ctx() const { return static_cast<int32_t>(llama_n_ctx_seq(context())); }

    // Throws an Error unless these tokens of a prompt are in the vocabulary and fit after n_before others.
    void check_prompt(size_t n_before, const llama_token * tokens, size_t n) const;

    // Returns how many rows of logits a pass may compute for one sequence.
    int32_t most_rows() const;

    // Returns how many drafted tokens a pass may decode: all of them may have to be removed from the cache again, and
    // their rows of logits are kept.
    int32_t most_ahead() const;

    // Returns the limits of one tree. They are 0 if the model's cache cannot fork.
    TreeLimits tree_limits() const { return tree_limits_; }

    // Returns a context for an assistant, a model that reads this decoder's cells. All streams share it, and it is kept
    // as long as the decoder. The first call creates it. This makes llama.cpp clear the cells, so the call also empties
    // all slots. Call it while no pass runs. Throws an Error if the context cannot be created.
    std::shared_ptr<llama_context> context_of_assistant(const std::shared_ptr<Model> & assistant);

    // Returns the current cost of a pass for a stream whose text has n_cells tokens. The fixed cost of a pass is
    // divided by the average number of streams in recent passes.
    PassCost pass_cost(size_t n_cells) const;

private:
    const KvCache::Sequences sequences_;
    PassRunner runner_;
    KvCache cache_;
    const TreeLimits tree_limits_;
    PassQueue queue_;
    std::map<std::shared_ptr<Model>, std::shared_ptr<llama_context>> assistants_;  // used while no pass runs
};

}  // namespace eliza
