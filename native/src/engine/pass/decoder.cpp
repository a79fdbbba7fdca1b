#include "engine/pass/decoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/pass/batch.h"

namespace eliza {
namespace {

// Each lane of a tree is a sequence of the KV cache, and needs memory for a row of logits.
constexpr int32_t max_lanes = 32;
constexpr size_t max_row_bytes = size_t(64) << 20;

// A cell of a unified KV cache can belong to several sequences, a recurrent state cannot. With a sliding window,
// llama.cpp overwrites only cells that belong to a single sequence, so a slot keeps its window while it has lanes.
int32_t lanes_for(const Model & model, const Options & options) {
    return options.kv_unified && !model.is_recurrent() ? max_lanes : 0;
}

int32_t rows_within_memory(const Model & model) {
    const size_t row_bytes = static_cast<size_t>(model.n_vocab()) * sizeof(float);
    return static_cast<int32_t>(std::max<size_t>(1, max_row_bytes / row_bytes));
}

// The pass of a tree also decodes the token before the tree, so the tree has one token less than a batch.
TreeLimits limits_for(const PassRunner & runner, int32_t n_lanes) {
    return n_lanes > 0 ? TreeLimits{runner.n_batch() - 1, rows_within_memory(runner.model()), n_lanes}
                       : TreeLimits{0, 0, 0};
}

}  // namespace

Decoder::Decoder(const std::shared_ptr<Model> & model, std::shared_ptr<ComputeThreads> threads, const Options & options,
                 const DecoderSettings & settings)
    : runner_(model, std::move(threads), options, settings.types, settings.n_snapshots, lanes_for(*model, options)),
      cache_(*model, context(), settings.types, options.n_slots, lanes_for(*model, options), options.parks),
      tree_limits_(limits_for(runner_, lanes_for(*model, options))),
      queue_(runner_, cache_, options.share_passes && model->can_share_passes(),
             std::max(rows_within_memory(*model), options.n_slots)) {}

int32_t Decoder::most_rows() const { return std::min(n_batch(), rows_within_memory(model())); }

int32_t Decoder::most_ahead() const { return std::min(cache_.most_revocable(n_batch()), most_rows() - 1); }

std::shared_ptr<llama_context> Decoder::context_of_assistant(const std::shared_ptr<Model> & assistant) {
    const auto found = assistants_.find(assistant);
    if (found != assistants_.end()) {
        return found->second;
    }
    llama_context_params params = llama_context_default_params();
    runner_.set_layout_of_cells(params);
    params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    params.ctx_other = runner_.context();
    params.n_ctx = llama_n_ctx(runner_.context());
    params.n_seq_max = params.n_outputs_max = static_cast<uint32_t>(cache_.slots().size());
    params.n_batch = params.n_ubatch = params.n_seq_max;
    params.no_perf = true;
    cache_.clear();
    const std::shared_ptr<llama_context> context = assistant->new_context(params, "to draft in");
    runner_.threads().attach_to(context.get());
    return assistants_[assistant] = context;
}

// Waits until no other request uses the context, then measures. Setting `cancelled` ends the wait.
std::optional<PassCost> Decoder::pass_cost(Slot & slot, size_t n_cells, CancelFlag & cancelled) {
    constexpr size_t measurable_cells = 64;  // with fewer, the measured time is mostly noise
    Costs known = costs();
    if (!known.pass) {
        try {
            queue_.run_alone(slot, cancelled, [&] {
                if (known = costs(); !known.pass) {
                    known.pass = measure_cost(cancelled);
                    keep(known);
                }
            });
        } catch (const ContextFull &) {
            return std::nullopt;
        }
    }
    if (!known.lane_a_cell && n_cells >= measurable_cells) {
        queue_.run_alone(slot, cancelled, [&] {
            known = costs();
            if (const size_t n = slot.cached.size(); !known.lane_a_cell && n >= measurable_cells) {
                known.lane_a_cell = std::max(0.0, time_lane(&slot) - known.pass->lane) / static_cast<double>(n);
                keep(known);
            }
        });
    }
    PassCost cost = *known.pass;
    cost.pass /= queue_.scheduler().sequences_a_pass();
    cost.lane += known.lane_a_cell.value_or(0.0) * static_cast<double>(n_cells);
    return cost;
}

Decoder::Costs Decoder::costs() {
    const std::lock_guard<std::mutex> lock(costs_mutex_);
    return costs_;
}

void Decoder::keep(const Costs & measured) {
    const std::lock_guard<std::mutex> lock(costs_mutex_);
    costs_ = measured;
}

// Returns how many microseconds it takes to make and drop a lane. The lane shares the cells of `slot`; it is empty if
// `slot` is nullptr.
double Decoder::time_lane(const Slot * slot) {
    constexpr int n_repeats = 8;
    double best = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < n_repeats; ++repeat) {
        const int64_t start = llama_time_us();
        { const KvCache::Fork lane(cache_, slot, 1); }
        best = std::min(best, static_cast<double>(llama_time_us() - start));
    }
    return best;
}

// Uses a lane, so that the slots stay unchanged.
PassCost Decoder::measure_cost(CancelFlag & cancelled) {
    constexpr int32_t n_many = 8;
    const KvCache::Fork fork(cache_, nullptr, 1);
    const llama_seq_id lane = fork.lanes().front();
    llama_memory_t memory = llama_get_memory(context());
    const auto time = [&](int32_t n_tokens, int32_t n_rows) {
        Batch batch;
        for (int32_t i = 0; i < n_tokens; ++i) {
            batch.add(i, i, {lane}, i >= n_tokens - n_rows);
        }
        double best = std::numeric_limits<double>::infinity();
        for (int repeat = 0; repeat < 3; ++repeat) {  // the first repetition also builds the graph
            const int64_t start = llama_time_us();
            PassRunner::Result result = runner_.run(batch, Rows::some);
            while (result == PassRunner::no_room && cache_.make_room()) {
                result = runner_.run(batch, Rows::some);
            }
            if (result == PassRunner::no_room) {
                throw ContextFull("the KV cache has no room to measure a pass");
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
    PassCost cost;
    cost.lane = time_lane(nullptr);
    cost.row = std::max(0.0, (rows - many) / (n_many - 1));
    cost.token = std::max(0.0, (many - one) / (n_many - 1));
    cost.pass = std::max(0.0, one - cost.token - cost.row);
    return cost;
}

}  // namespace eliza
