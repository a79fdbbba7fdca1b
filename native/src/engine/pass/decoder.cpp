#include "engine/pass/decoder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/pass/batch.h"
#include "engine/pass/sequence.h"
#include "engine/pass/threads.h"
#include "llama-ext.h"
#include "log.h"

namespace eliza {
namespace {

constexpr int32_t default_n_ctx = 8192;

// Mesa's software Vulkan is the CPU: there is nothing to save. Mesa 22.3's also uses buffers that are freed
// already once llama.cpp has reserved its graphs anew, which attaching a sampler makes it do.
bool is_software(ggml_backend_dev_t device) {
    return std::string_view(ggml_backend_dev_description(device)).find("llvmpipe") != std::string_view::npos;
}

bool gathers_by_itself(const Model & model) {
    for (int32_t i = 0; i < llama_model_n_devices(model.get()); ++i) {
        if (is_software(llama_model_get_device(model.get(), i))) {
            return false;
        }
    }
    return model.is_offloaded();
}

constexpr uint32_t n_ctx_step = 256;  // what llama.cpp rounds up to, and more than there are sequences

// Lanes of a tree, each a sequence of the KV cache. They cost memory for as many rows of logits.
constexpr int32_t max_lanes = 32;
constexpr size_t max_row_bytes = size_t(64) << 20;

size_t count_rows(const llama_batch & batch) {
    return static_cast<size_t>(
        std::count_if(batch.logits, batch.logits + batch.n_tokens, [](int8_t want) { return want != 0; }));
}

// Flash attention on the CPU sums in half precision, in the order of the KV cells: the same prompt
// gives logits up to 0.01 apart depending on what other slots hold (0 apart without it), and a token
// takes longer (1.6 times at 2,000 tokens of context). There it is used only where a quantized V
// needs it.
llama_flash_attn_type resolve_flash_attn(const Options & options, const Model & model, KvTypes types) {
    if (options.flash_attn != LLAMA_FLASH_ATTN_TYPE_AUTO) {
        return options.flash_attn;
    }
    return model.is_offloaded() || ggml_is_quantized(types.v) ? LLAMA_FLASH_ATTN_TYPE_AUTO
                                                              : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

// Cells of the KV cache can belong to several sequences. A recurrent state cannot, and a sliding
// window drops cells that a lane still needs.
bool can_fork(const Model & model) { return !model.is_recurrent() && llama_model_n_swa(model.get()) == 0; }

}  // namespace

ggml_type kv_type_from_name(const std::string & option, const std::string & name) {
    const std::vector<ggml_type> types = {GGML_TYPE_F32,    GGML_TYPE_F16,  GGML_TYPE_BF16,
                                          GGML_TYPE_Q8_0,   GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                                          GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1};
    std::string known;
    for (const ggml_type type : types) {
        if (name == ggml_type_name(type)) {
            return type;
        }
        known += (known.empty() ? "" : ", ") + std::string(ggml_type_name(type));
    }
    throw invalid_argument(option + ": \"" + name + "\" is not a KV cache type; there are " + known);
}

Decoder::Decoder(std::shared_ptr<Model> model, const Options & options, const DecoderSettings & settings)
    : model_(std::move(model)), kv_types_(settings.types), slots_(options.n_slots) {
    const KvTypes & types = kv_types_;
    if (!llama_model_has_decoder(model_->get()) || llama_model_has_encoder(model_->get())) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID, "the model is not a decoder alone: it cannot go on with a text");
    }
    if (ggml_is_quantized(types.v) && options.flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
        throw invalid_argument("cache_type_v " + std::string(ggml_type_name(types.v)) +
                               " needs flash attention, which option flash_attn has switched off");
    }
    adapt_threads_ = options.n_threads == 0;
    n_threads_ = adapt_threads_ ? default_thread_count() : options.n_threads;

    llama_context_params params = llama_context_default_params();
    const auto n_ctx = static_cast<uint32_t>(
        options.n_ctx > 0 ? options.n_ctx : std::min(llama_model_n_ctx_train(model_->get()), default_n_ctx));
    params.n_ctx = (n_ctx + n_ctx_step - 1) / n_ctx_step * n_ctx_step;
    params.n_seq_max = static_cast<uint32_t>(options.n_slots + (can_fork(*model_) ? max_lanes : 0));
    // llama.cpp ends the process where a batch has not room for a token of each sequence.
    params.n_batch = std::max(static_cast<uint32_t>(options.n_batch), params.n_seq_max);
    params.n_ubatch = params.n_batch;
    // llama.cpp ends the process where a batch has not room for the tokens of all snapshots and one more.
    params.n_rs_seq = static_cast<uint32_t>(std::clamp(options.n_batch - 2, 0, settings.n_snapshots));
    params.n_threads = n_threads_;
    params.n_threads_batch = n_threads_;
    params.flash_attn_type = resolve_flash_attn(options, *model_, types);
    params.type_k = types.k;
    params.type_v = types.v;
    params.kv_unified = true;  // slots share all cells, so an idle one costs nothing
    params.no_perf = true;
    params.cb_eval = OutputHead::on_tensor;
    params.cb_eval_user_data = &head_;
    params.abort_callback = is_cancelled;
    params.abort_callback_data = this;

    ggml_threadpool_params pool_params = ggml_threadpool_params_default(n_threads_);
    threadpool_.reset(ggml_threadpool_new(&pool_params));

    const LlamaErrorCapture capture;
    context_.reset(llama_init_from_model(model_->get(), params));
    if (context_ == nullptr) {
        throw Error(ELIZA_ERR_FFI_FAULT,
                    "cannot create a context of " + std::to_string(params.n_ctx) + " tokens" + capture.suffix());
    }
    if (llama_get_memory(context_.get()) == nullptr) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID, "the model keeps no KV cache: it cannot go on with a text");
    }
    may_gather_ = options.backend_sampling.value_or(gathers_by_itself(*model_));
    llama_attach_threadpool(context_.get(), threadpool_.get(), threadpool_.get());
    n_batch_ = std::min(options.n_batch, static_cast<int32_t>(llama_n_batch(context_.get())));
    if (can_fork(*model_)) {
        const size_t row_bytes = static_cast<size_t>(model_->n_vocab()) * sizeof(float);
        // The token that waits goes with the tree.
        tree_limits_ = {n_batch_ - 1, static_cast<int32_t>(std::max<size_t>(1, max_row_bytes / row_bytes)), max_lanes};
    }
}

bool Decoder::is_cancelled(void * decoder) { return static_cast<Decoder *>(decoder)->turns_.is_cancelled(); }

bool Decoder::make_room() {
    Slot * slot = slots_.least_wanted();
    if (slot == nullptr) {
        return false;
    }
    truncate(*slot, slot->n_wanted);
    return true;
}

size_t Decoder::truncate(Slot & slot, size_t n) {
    if (slot.cached.size() <= n) {
        return slot.cached.size();
    }
    llama_memory_t memory = llama_get_memory(context_.get());
    // llama.cpp does not know which of the snapshots are of the last pass.
    const bool is_possible = !model_->is_recurrent() || slot.cached.size() - n <= slot.n_revocable;
    if (!is_possible || !llama_memory_seq_rm(memory, slot.id, static_cast<llama_pos>(n), -1) ||
        !holds_window_of(slot, n)) {
        llama_memory_seq_rm(memory, slot.id, -1, -1);
        n = 0;
    }
    slot.cached.resize(n);
    slot.n_revocable = 0;
    return n;
}

// llama.cpp overwrites cells that have left a sliding window, and steps back behind them all the same.
bool Decoder::holds_window_of(const Slot & slot, size_t n) const {
    const auto n_swa = static_cast<size_t>(llama_model_n_swa(model_->get()));
    if (n == 0 || n_swa == 0) {
        return true;
    }
    const llama_pos oldest = llama_memory_seq_pos_min(llama_get_memory(context_.get()), slot.id);
    return oldest >= 0 && static_cast<size_t>(oldest) <= n - std::min(n, n_swa);
}

size_t Decoder::reuse_prefix(Slot & slot, const std::vector<llama_token> & tokens) {
    const auto shared_with = [&](const Slot & other) {
        const auto end = std::mismatch(tokens.begin(), tokens.end() - 1, other.cached.begin(), other.cached.end());
        return static_cast<size_t>(end.first - tokens.begin());
    };
    const size_t own = truncate(slot, shared_with(slot));
    if (model_->is_recurrent()) {
        return own;  // a state, not cells: a part of it cannot be shared
    }
    const Slot * donor = nullptr;
    size_t longest = own;
    llama_memory_t memory = llama_get_memory(context_.get());
    for (const Slot & other : slots_.all()) {
        const size_t shared = shared_with(other);
        if (shared > longest && llama_memory_seq_pos_min(memory, other.id) <= static_cast<llama_pos>(own)) {
            longest = shared;
            donor = &other;
        }
    }
    if (donor != nullptr) {
        // The cells are shared, not copied.
        llama_memory_seq_cp(memory, donor->id, slot.id, static_cast<llama_pos>(own), static_cast<llama_pos>(longest));
        slot.cached.insert(slot.cached.end(), tokens.begin() + static_cast<ptrdiff_t>(own),
                           tokens.begin() + static_cast<ptrdiff_t>(longest));
    }
    return longest;
}

int32_t Decoder::useful_threads(uint64_t n_params, int32_t n_tokens) const {
    return adapt_threads_ ? useful_thread_count(n_threads_, n_params, n_tokens) : n_threads_;
}

int32_t Decoder::choose_threads(uint64_t n_params, int32_t n_tokens) {
    const int32_t n_threads = useful_threads(n_params, n_tokens);
    return adapt_threads_ && n_threads > 1 ? busy_guard_.limit(n_threads) : n_threads;
}

void Decoder::lend_threads(llama_context * context, uint64_t n_weights, size_t n_tokens) {
    const int32_t useful = useful_threads(n_weights, static_cast<int32_t>(n_tokens));
    const int32_t n_threads = adapt_threads_ && busy_guard_.is_pausing() ? 1 : useful;
    llama_attach_threadpool(context, threadpool_.get(), threadpool_.get());
    llama_set_n_threads(context, n_threads, n_threads);
}

void Decoder::compute_logits(const Turn &, const HiddenState & hidden, std::vector<float> & out) {
    const uint64_t n_weights = hidden.values.size() * static_cast<uint64_t>(model_->n_vocab());
    head_.all_logits(hidden, choose_threads(n_weights, 1), threadpool_.get(), out);
}

void Decoder::run(const llama_batch & batch, int32_t position) {
    const int32_t n_threads = choose_threads(llama_model_n_params(model_->get()), batch.n_tokens);
    llama_set_n_threads(context_.get(), n_threads, n_threads);
    if (const bool keep = n_readers_ > 0; keep != keeps_hidden_states_) {
        llama_set_embeddings_nextn(context_.get(), keep, /*masked=*/false);
        keeps_hidden_states_ = keep;
    }
    check_rpc_connections(model_->rpc_servers());
    const int64_t start = llama_time_us();
    const int64_t n_switches = BusyMachineGuard::count_switches();
    head_.begin_pass();
    const LlamaErrorCapture capture;
    int32_t result = llama_decode(context_.get(), batch);
    while (result == 1 && make_room()) {
        result = llama_decode(context_.get(), batch);
    }
    if (adapt_threads_ && n_threads > 1) {
        llama_synchronize(context_.get());
        busy_guard_.look_at_pass(llama_time_us() - start, BusyMachineGuard::count_switches() - n_switches);
    }
    if (!model_->rpc_servers().empty()) {
        llama_synchronize(context_.get());  // or a connection may yet break before the logits are here
        check_rpc_connections(model_->rpc_servers());
    }
    if (result == 0 && head_.is_stopping() && head_.rows().size() != count_rows(batch)) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the pass did not stop before the output head (option restricted_head)");
    }
    bytes_copied_ = static_cast<int64_t>(count_rows(batch) * bytes_of_row());
    switch (result) {
        case 0: return;
        case 1:
            throw ContextFull(ELIZA_ERR_FFI_FAULT, "context full: no room for " + std::to_string(batch.n_tokens) +
                                                       " more tokens after " + std::to_string(position) +
                                                       " (option n_ctx is " + std::to_string(n_ctx()) +
                                                       ", shared by all open streams)");
        case 2: turns_.clear_cancelled(); throw Error(ELIZA_ERR_CANCELLED, "cancelled");
        default:
            throw Error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result) + capture.suffix());
    }
}

size_t Decoder::bytes_of_row() const {
    if (n_gathered_ > 0) {
        return sizeof(float) * n_gathered_;
    }
    // Where a pass stops before the head, llama.cpp copies its row all the same, whatever is in it.
    const int32_t n = model_->n_vocab() + (head_.is_stopping() ? llama_model_n_embd_out(model_->get()) : 0);
    return sizeof(float) * static_cast<size_t>(n);
}

void Decoder::attach_gather(const Slot & slot, TokenSpan tokens) {
    auto & attached = gathers_[slot.id];
    n_gathered_ = 0;
    if (tokens.empty()) {
        if (attached != nullptr) {
            llama_set_sampler(context_.get(), slot.id, nullptr);
            attached.reset();
        }
        return;
    }
    if (attached == nullptr || attached->width() < tokens.size) {
        uint32_t width = LogitGather::least_width;
        while (width < tokens.size) {
            width *= 2;
        }
        llama_set_sampler(context_.get(), slot.id, nullptr);
        attached = std::make_unique<LogitGather>(width);
        if (!llama_set_sampler(context_.get(), slot.id, attached->chain()) || !attached->is_supported()) {
            llama_set_sampler(context_.get(), slot.id, nullptr);
            attached.reset();
            may_gather_ = false;  // all logits are copied, here and from now on
            return;
        }
    }
    attached->set_tokens(tokens);
    n_gathered_ = attached->width();
}

void Decoder::decode(Slot & slot, const llama_token * tokens, int32_t n, int32_t begin, bool want_logits,
                     TokenSpan gather) {
    if (want_logits) {
        attach_gather(slot, gather);
    }
    decode_in_slot(slot, tokens, n, begin, want_logits ? 1 : 0);
}

std::vector<std::vector<float>> Decoder::decode_rows(Slot & slot, const std::vector<llama_token> & tokens,
                                                     int32_t begin, size_t n_rows) {
    attach_gather(slot, {});
    const auto n = static_cast<int32_t>(tokens.size());
    decode_in_slot(slot, tokens.data(), n, begin, static_cast<int32_t>(n_rows));
    std::vector<std::vector<float>> rows;
    for (int32_t i = n - static_cast<int32_t>(n_rows); i < n; ++i) {
        const float * row = llama_get_logits_ith(context_.get(), i);
        rows.emplace_back(row, row + model_->n_vocab());
    }
    return rows;
}

void Decoder::decode_in_slot(Slot & slot, const llama_token * tokens, int32_t n, int32_t begin, int32_t n_rows) {
    Batch batch;
    for (int32_t i = 0; i < n; ++i) {
        batch.add(tokens[i], begin + i, {slot.id}, i >= n - n_rows);
    }
    slot.cached.insert(slot.cached.end(), tokens, tokens + n);
    try {
        run(batch.get(), begin);
        slot.n_revocable = std::min(static_cast<size_t>(n) - 1, static_cast<size_t>(most_ahead()));
    } catch (const ContextFull &) {
        slot.cached.resize(static_cast<size_t>(begin));  // llama.cpp has not begun
        throw;
    } catch (...) {
        // llama.cpp leaves what an aborted pass had finished; nothing is left half done.
        slot.n_revocable = 0;
        truncate(slot, static_cast<size_t>(begin));
        throw;
    }
}

std::string Decoder::describe_cache() const {
    return std::string(ggml_type_name(kv_types_.k)) + "/" + ggml_type_name(kv_types_.v) + " llama.cpp " +
           ELIZA_LLAMA_CPP_COMMIT;
}

std::vector<uint8_t> Decoder::copy_state(const Slot & slot) {
    std::vector<uint8_t> state(llama_state_seq_get_size(context_.get(), slot.id));
    const size_t size = llama_state_seq_get_data(context_.get(), state.data(), state.size(), slot.id);
    check_rpc_connections(model_->rpc_servers());  // or part of it may be zeros
    if (size == 0) {
        throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp could not copy the state of slot " + std::to_string(slot.id));
    }
    state.resize(size);
    return state;
}

void Decoder::restore_state(Slot & slot, const std::vector<uint8_t> & state, size_t n_tokens) {
    llama_memory_t memory = llama_get_memory(context_.get());
    llama_memory_seq_rm(memory, slot.id, -1, -1);
    slot.cached.clear();
    slot.n_revocable = 0;
    const LlamaErrorCapture capture;
    do {
        if (llama_state_seq_set_data(context_.get(), state.data(), state.size(), slot.id) != 0 &&
            llama_memory_seq_pos_max(memory, slot.id) + 1 == static_cast<llama_pos>(n_tokens)) {
            return;
        }
        llama_memory_seq_rm(memory, slot.id, -1, -1);
    } while (make_room());
    throw Error(ELIZA_ERR_FFI_FAULT, "the saved state does not fit this context" + capture.suffix());
}

void Decoder::take_over_logits(Sequence * owner) {
    const std::lock_guard<std::mutex> lock(owner_mutex_);
    if (logits_owner_ != nullptr && logits_owner_ != owner) {
        logits_owner_->save_logits();
    }
    logits_owner_ = owner;
}

bool Decoder::holds_logits_of(const Sequence * sequence) {
    const std::lock_guard<std::mutex> lock(owner_mutex_);
    return logits_owner_ == sequence;
}

void Decoder::forget_logits_of(const Sequence * owner) {
    const std::lock_guard<std::mutex> lock(owner_mutex_);
    if (logits_owner_ == owner) {
        logits_owner_ = nullptr;
    }
}

}  // namespace eliza
