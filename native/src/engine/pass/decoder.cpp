#include "engine/pass/decoder.h"

#include <algorithm>
#include <utility>

namespace eliza {
namespace {

// The pass of a tree also decodes the token before the tree, so the tree has one token less than a batch.
TreeLimits limits_for(const PassRunner & runner, int32_t n_lanes) {
    return n_lanes > 0 ? TreeLimits{runner.n_batch() - 1, runner.max_rows(), n_lanes} : TreeLimits{0, 0, 0};
}

}  // namespace

// llama.cpp needs memory for a row of logits of each sequence, and in each pass time for each pair of them.
//
// A cell of the KV cache can belong to several sequences, a recurrent state cannot. With a sliding window,
// llama.cpp overwrites only cells that belong to a single sequence, so a slot keeps its window while it has lanes.
//
// With a single slot, no other texts are kept: rounding depends on the cached part of a prompt, and results should not
// depend on what was read long ago.
KvCache::Sequences Decoder::sequences_for(const Model & model, int32_t n_slots) {
    constexpr int32_t min_lanes = 32, min_kept = 16, max_sequences = 128;
    if (model.is_recurrent()) {
        return {n_slots, 0, 0};
    }
    const int32_t n_others =
        std::max(min_lanes + min_kept, std::min(max_sequences, PassRunner::max_rows(model)) - n_slots);
    const int32_t n_lanes = std::max(min_lanes, n_others / 2);
    return {n_slots, n_slots > 1 ? n_others - n_lanes : 0, n_lanes};
}

Decoder::Decoder(const std::shared_ptr<Model> & model, std::shared_ptr<ComputeThreads> threads, const Options & options,
                 const DecoderSettings & settings)
    : sequences_(sequences_for(*model, options.n_slots)),
      runner_(model, std::move(threads), options, settings.types, settings.n_snapshots, sequences_.n_all()),
      cache_(*model, context(), settings.types, sequences_, options.parks),
      tree_limits_(limits_for(runner_, sequences_.n_lanes)),
      queue_(runner_, cache_, options.share_passes && model->can_share_passes()) {}

void Decoder::check_prompt(size_t n_before, const llama_token * tokens, size_t n) const {
    const auto most = static_cast<size_t>(n_ctx());
    if (n > most - std::min(n_before, most)) {
        throw ContextFull("a prompt of " + std::to_string(n) + " tokens" +
                          (n_before > 0 ? " after " + std::to_string(n_before) : "") + " does not fit the context of " +
                          std::to_string(most) + " (option n_ctx)");
    }
    model().check_tokens(tokens, n);
}

int32_t Decoder::most_rows() const { return std::min(n_batch(), runner_.max_rows()); }

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

PassCost Decoder::pass_cost(size_t n_cells) const {
    PassCost cost = runner_.cost();
    cost.pass /= queue_.scheduler().sequences_a_pass();
    cost.lane = cache_.lane_us(n_cells);
    return cost;
}

}  // namespace eliza
