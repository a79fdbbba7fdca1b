// One llama_context that streams share: its cache, who runs its passes, and the queue at it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "engine/pass/pass_cost.h"
#include "engine/pass/pass_queue.h"
#include "engine/pass/pass_runner.h"
#include "engine/pass/tree_batch.h"

namespace eliza {

// What streams must have in common to share a decoder.
struct DecoderSettings {
    KvTypes types;
    int32_t n_snapshots = 0;  // of a recurrent state: that many of a pass's last tokens can be taken back

    friend bool operator<(const DecoderSettings & a, const DecoderSettings & b) {
        return std::tie(a.types.k, a.types.v, a.n_snapshots) < std::tie(b.types.k, b.types.v, b.n_snapshots);
    }
};

class Decoder {
public:
    // Throws Error where there is no room for such a context, or the model cannot go on with a text.
    Decoder(const std::shared_ptr<Model> & model, std::shared_ptr<ComputeThreads> threads, const Options & options,
            const DecoderSettings & settings);

    const Model & model() const { return runner_.model(); }
    PassRunner & runner() { return runner_; }
    KvCache & cache() { return cache_; }
    PassQueue & queue() { return queue_; }

    llama_context * context() const { return runner_.context(); }
    int32_t n_batch() const { return runner_.n_batch(); }
    int32_t n_ctx() const { return static_cast<int32_t>(llama_n_ctx(context())); }

    // How many tokens may be decoded on the chance that they follow: they may have to be taken back.
    int32_t most_ahead() const { return cache_.most_revocable(n_batch()); }

    // What one tree may hold; no lanes where the model's memory cannot fork.
    TreeLimits tree_limits() const { return tree_limits_; }

    // What a pass costs the stream in this slot now, whose text has n_cells tokens. Measured on the first call; the
    // fixed cost of a pass is divided among the streams that share it. Nothing if the cache has no room to measure.
    // Throws Error if it is cancelled.
    std::optional<PassCost> pass_cost(Slot & slot, size_t n_cells, CancelFlag & cancelled);

private:
    struct Costs {
        std::optional<PassCost> pass;  // its lane behind nothing
        std::optional<double> lane_a_cell;
    };

    Costs costs();
    void keep(const Costs & measured);
    PassCost measure_cost(CancelFlag & cancelled);
    double time_lane(const Slot * slot);

    PassRunner runner_;
    KvCache cache_;
    const TreeLimits tree_limits_;
    PassQueue queue_;
    std::mutex costs_mutex_;  // guards the next
    Costs costs_;
};

}  // namespace eliza
