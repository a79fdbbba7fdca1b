#include "engine/pass/decoder.h"

#include <algorithm>
#include <limits>

#include "engine/pass/batch.h"

namespace eliza {
namespace {

// Lanes of trees, each a sequence of the KV cache. They cost memory for as many rows of logits.
constexpr int32_t max_lanes = 32;
constexpr size_t max_row_bytes = size_t(64) << 20;

// Cells of the KV cache can belong to several sequences. A recurrent state cannot, and a sliding window drops
// cells that a lane still needs.
int32_t lanes_for(const Model & model) {
    return model.is_recurrent() || llama_model_n_swa(model.get()) > 0 ? 0 : max_lanes;
}

int32_t most_rows(const Model & model) {
    const size_t row_bytes = static_cast<size_t>(model.n_vocab()) * sizeof(float);
    return static_cast<int32_t>(std::max<size_t>(1, max_row_bytes / row_bytes));
}

// The token that waits goes with the tree.
TreeLimits limits_for(const PassRunner & runner) {
    const int32_t n_lanes = lanes_for(runner.model());
    return n_lanes > 0 ? TreeLimits{runner.n_batch() - 1, most_rows(runner.model()), n_lanes} : TreeLimits{0, 0, 0};
}

}  // namespace

Decoder::Decoder(const std::shared_ptr<Model> & model, const Options & options, const DecoderSettings & settings)
    : runner_(model, options, settings.types, settings.n_snapshots, lanes_for(*model)),
      cache_(*model, context(), settings.types, options.n_slots, lanes_for(*model), options.park_after),
      tree_limits_(limits_for(runner_)),
      queue_(runner_, cache_, options.share_passes && model->can_share_passes(),
             std::max(most_rows(*model), options.n_slots)) {}

std::optional<PassCost> Decoder::pass_cost(CancelFlag & cancelled) {
    const std::lock_guard<std::mutex> lock(cost_mutex_);
    if (!cost_) {
        try {
            queue_.run_alone(cancelled, [&] { cost_ = measure_cost(cancelled); });
        } catch (const ContextFull &) {
            return std::nullopt;
        }
    }
    PassCost cost = *cost_;
    cost.pass /= queue_.pass().sequences_a_pass();
    return cost;
}

// On a lane, so that no slot is touched.
PassCost Decoder::measure_cost(CancelFlag & cancelled) {
    constexpr int32_t n_many = 8;
    const Slot & any_slot = cache_.slots().all().front();
    const KvCache::Fork fork(cache_, any_slot, 1);
    const llama_seq_id lane = fork.lanes().front();
    llama_memory_t memory = llama_get_memory(context());
    llama_memory_seq_rm(memory, lane, -1, -1);
    const PassRunner::Wanted some_logits{/*whole=*/false, {}};
    const auto time = [&](int32_t n_tokens, int32_t n_rows) {
        Batch batch;
        for (int32_t i = 0; i < n_tokens; ++i) {
            batch.add(i, i, {lane}, i >= n_tokens - n_rows);
        }
        double best = std::numeric_limits<double>::infinity();
        for (int repeat = 0; repeat < 3; ++repeat) {  // the first one also builds the graph
            const int64_t start = llama_time_us();
            PassRunner::Result result = runner_.run(batch, some_logits);
            while (result == PassRunner::no_room && cache_.make_room()) {
                result = runner_.run(batch, some_logits);
            }
            if (result == PassRunner::no_room) {
                throw ContextFull(ELIZA_ERR_FFI_FAULT, "context full: no room to measure");
            }
            if (result == PassRunner::stopped) {
                cancelled.throw_if_set();
            }
            best = std::min(best, static_cast<double>(llama_time_us() - start));
            llama_memory_seq_rm(memory, lane, -1, -1);
        }
        return best;
    };
    const double one = time(1, 1), many = time(n_many, 1), rows = time(n_many, n_many);
    const int64_t start = llama_time_us();
    for (int repeat = 0; repeat < 8; ++repeat) {
        const KvCache::Fork one_lane(cache_, any_slot, 1);
    }
    PassCost cost;
    cost.lane = static_cast<double>(llama_time_us() - start) / 8.0;
    cost.row = std::max(0.0, (rows - many) / (n_many - 1));
    cost.token = std::max(0.0, (many - one) / (n_many - 1));
    cost.pass = std::max(0.0, one - cost.token - cost.row);
    return cost;
}

}  // namespace eliza
