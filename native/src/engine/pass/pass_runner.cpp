#include "engine/pass/pass_runner.h"

#include <algorithm>
#include <cfloat>

#include "engine/model/rpc_connections.h"
#include "error.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-model.h"
#include "log.h"

namespace eliza {
namespace {

constexpr int32_t default_n_ctx = 8192;

// With flash_attn=auto, a model on the CPU does not use flash attention if a cache stores 32-bit floats, because
// llama.cpp would convert all cells to half precision in each pass.
llama_flash_attn_type resolve_flash_attn(const Options & options, const Model & model, KvTypes types) {
    if (options.flash_attn != LLAMA_FLASH_ATTN_TYPE_AUTO || model.is_offloaded() || ggml_is_quantized(types.v)) {
        return options.flash_attn;
    }
    const bool has_floats = types.k == GGML_TYPE_F32 || types.v == GGML_TYPE_F32;
    return has_floats ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_AUTO;
}

void require_usable(const Model & model, const Options & options, KvTypes types) {
    if (!llama_model_has_decoder(model.get()) || llama_model_has_encoder(model.get())) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "the model is not decoder-only: it cannot generate text");
    }
    if (!model.has_output_head()) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "the model computes embeddings: it cannot generate text");
    }
    if (!model.takes_flash_attention() &&
        (options.flash_attn == LLAMA_FLASH_ATTN_TYPE_ENABLED || ggml_is_quantized(types.v))) {
        throw invalid_argument("llama.cpp has no flash attention for this model (" + model.architecture() +
                               "): leave option flash_attn at auto or off, and cache_type_v unquantized");
    }
    if (ggml_is_quantized(types.v) && options.flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
        throw invalid_argument("cache_type_v: " + std::string(ggml_type_name(types.v)) +
                               " needs flash attention, but option flash_attn is off");
    }
}

bool is_on_cpu(ggml_backend_dev_t device) {
    return device != nullptr && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

}  // namespace

int32_t PassRunner::max_rows(const Model & model) {
    constexpr size_t max_bytes = size_t(64) << 20;
    const size_t row_bytes = static_cast<size_t>(model.n_vocab()) * sizeof(float);
    return static_cast<int32_t>(std::max<size_t>(1, max_bytes / row_bytes));
}

PassRunner::PassRunner(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads, const Options & options,
                       KvTypes types, int32_t n_snapshots, int32_t n_sequences)
    : model_(std::move(model)),
      all_rows_(model_->computes_all_rows()),
      image_tokens_(model_->image_tokens()),
      max_rows_(max_rows(*model_)),
      types_(types),
      threads_(std::move(threads)),
      layers_(llama_model_n_layer(model_->get()), llama_model_n_embd(model_->get())),
      times_(*model_) {
    require_usable(*model_, options, types);

    llama_context_params params = llama_context_default_params();
    const auto n_ctx = static_cast<uint32_t>(
        options.n_ctx > 0 ? options.n_ctx : std::min(llama_model_n_ctx_train(model_->get()), default_n_ctx));
    params.n_ctx = rounded_n_ctx(n_ctx);
    params.n_seq_max = static_cast<uint32_t>(n_sequences);
    // llama.cpp aborts the process if a batch has no room for one token of each sequence.
    params.n_batch = std::max(std::min(static_cast<uint32_t>(options.n_batch), params.n_ctx), params.n_seq_max);
    params.n_ubatch = params.n_batch;
    // llama.cpp reserves memory for the logits of n_outputs_max tokens, and aborts the process if a pass wants more, or
    // if there are more sequences.
    if (!all_rows_) {
        params.n_outputs_max =
            std::min(std::max(static_cast<uint32_t>(max_rows_) + 1, params.n_seq_max), params.n_batch);
    }
    // llama.cpp aborts the process if a batch has no room for the tokens of all snapshots and one more.
    params.n_rs_seq = static_cast<uint32_t>(std::clamp(options.n_batch - 2, 0, n_snapshots));
    params.n_threads = params.n_threads_batch = threads_->size();
    params.flash_attn_type = resolve_flash_attn(options, *model_, types);
    params.type_k = types.k;
    params.type_v = types.v;
    params.kv_unified = true;
    params.no_perf = true;
    // With an eval callback, ggml's scheduler waits for each part of the graph. Set it only if passes may stop early.
    always_watches_ = is_on_cpu(model_->get()->dev_output()) && !all_rows_;
    if (always_watches_) {
        params.cb_eval = on_tensor;
        params.cb_eval_user_data = this;
    }
    params.abort_callback = is_stopped;
    params.abort_callback_data = this;

    context_ = model_->new_context(params, "of " + std::to_string(params.n_ctx) + " tokens");
    if (llama_get_memory(context_.get()) == nullptr) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "the model keeps no KV cache: it cannot generate text");
    }
    threads_->attach_to(context_.get());
    n_batch_ = std::min(options.n_batch, static_cast<int32_t>(llama_n_batch(context_.get())));
}

void PassRunner::set_layout_of_cells(llama_context_params & params) const {
    const llama_cparams & own = context_->get_cparams();
    params.flash_attn_type = own.flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.kv_unified = true;
    params.type_k = types_.k;
    params.type_v = types_.v;
}

bool PassRunner::is_stopped(void * runner) {
    return static_cast<PassRunner *>(runner)->is_stopped_.load(std::memory_order_relaxed) ||
           WorkBeforeExit::must_stop();
}

bool PassRunner::on_tensor(ggml_tensor * tensor, bool ask, void * runner) {
    auto & self = *static_cast<PassRunner *>(runner);
    const bool is_for_head = self.always_watches_ && self.head_.wants(*tensor);
    const bool is_for_layers = self.layers_.wants(*tensor);
    if (ask) {
        return is_for_head || is_for_layers;
    }
    if (is_for_head) {
        self.head_.take(*tensor);
    }
    return (!is_for_layers || self.layers_.take(*tensor)) && !is_for_head;
}

// Sets the callback of this context for one pass. llama.cpp copies it to ggml's scheduler when it builds a graph, but
// not when it uses the last graph again.
void PassRunner::watch_tensors(bool watch) {
    const ggml_backend_sched_eval_callback callback = watch ? on_tensor : nullptr;
    auto & params = const_cast<llama_cparams &>(context_->get_cparams());
    params.cb_eval = callback;
    params.cb_eval_user_data = this;
    ggml_backend_sched_set_eval_callback(context_->get_sched(), callback, this);
}

void PassRunner::compute_logits(const std::vector<const HiddenState *> & hidden,
                                const std::vector<std::vector<float> *> & out) {
    const ComputeThreads::Turn turn(*threads_, model_->n_products(0, hidden.size()));
    head_.all_logits(hidden, turn.n_threads(), threads_->pool(), out);
}

bool PassRunner::leaves_out_layers(const Layers & layers) const {
    const auto deepest = std::max_element(layers.wanted.begin(), layers.wanted.end());
    return layers.stops && *deepest < llama_model_n_layer(model_->get());
}

PassRunner::Result PassRunner::run(Batch & batch, Rows rows, const Layers & layers) {
    has_hidden_rows_ = rows == Rows::some && head_.can_stop() && !layers.stops;
    const llama_batch tokens = batch.get(all_rows_);
    if (const bool keep = n_readers_ > 0; keep != keeps_hidden_states_) {
        llama_set_embeddings_nextn(context_.get(), keep, /*masked=*/false);
        keeps_hidden_states_ = keep;
    }
    check_rpc_connections(model_->rpc_servers());
    head_.begin_pass(has_hidden_rows_);
    layers_.begin_pass(layers.wanted, layers.stops);
    last_ = {static_cast<size_t>(tokens.n_tokens), batch.n_rows()};
    if (!always_watches_ && !layers.wanted.empty()) {
        watch_tensors(true);
    }
    const LlamaErrorCapture capture(/*failure_is_usual=*/true);  // if the cache is full, the caller makes room
    const auto n_tokens = static_cast<size_t>(tokens.n_tokens);
    const size_t n_rows = has_hidden_rows_ ? 0 : all_rows_ ? n_tokens : batch.n_rows();
    const int64_t start = llama_time_us();
    const int32_t result = [&] {
        ComputeThreads::Turn turn(*threads_, context_.get(), model_->n_products(n_tokens, n_rows));
        turn.watch();
        const int32_t status = llama_decode(context_.get(), tokens);
        llama_synchronize(context_.get());
        return status;
    }();
    if (!always_watches_ && !layers.wanted.empty()) {
        watch_tensors(false);
    }
    check_rpc_connections(model_->rpc_servers());  // a connection may have broken during the pass
    if (result != done && result != no_room && result != stopped) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result));
    }
    if (result == done && !leaves_out_layers(layers)) {
        times_.add(n_tokens, n_rows, llama_time_us() - start);
    }
    if (result == done && has_hidden_rows_ && head_.rows().size() != batch.n_rows()) {
        // This graph has another form than the graph that look_at() has seen.
        log(LogLevel::warning,
            "eliza: a forward pass did not stop before the output head; later passes compute it, too");
        head_.give_up();
        if (!head_.rows().empty()) {
            return stopped;  // it stopped, but with other rows: the caller runs the pass again
        }
        has_hidden_rows_ = false;  // it ran to its end: all logits are available
    }
    return static_cast<Result>(result);
}

LogitsRow PassRunner::take_row(size_t n, int32_t place_in_batch) {
    if (has_hidden_rows_) {
        return LogitsRow(head_, head_.rows()[n]);
    }
    float * logits = llama_get_logits_ith(context_.get(), place_in_batch);
    if (logits != nullptr) {
        std::fill(logits + image_tokens_.first, logits + image_tokens_.end, -FLT_MAX);
    }
    return LogitsRow(logits);
}

const float * PassRunner::hidden_row(int32_t layer, size_t n, int32_t place_in_batch) const {
    const float * values = layers_.row(layer, last_, static_cast<size_t>(place_in_batch), n);
    if (values == nullptr) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "llama.cpp's graph of the architecture " + model_->architecture() +
                                                   " does not name the hidden states of layer " +
                                                   std::to_string(layer));
    }
    return values;
}

size_t PassRunner::bytes_of_row() const {
    // If a pass stops before the head, llama.cpp still copies its row of logits, whose values are not used.
    const int32_t n_hidden = has_hidden_rows_ ? llama_model_n_embd_out(model_->get()) : 0;
    return sizeof(float) * static_cast<size_t>(model_->n_vocab() + n_hidden);
}

}  // namespace eliza
