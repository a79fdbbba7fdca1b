#include "engine/decoder.h"

#include <algorithm>
#include <utility>

#include "engine/sequence.h"
#include "engine/threads.h"
#include "log.h"

namespace eliza {
namespace {

constexpr int32_t default_n_ctx = 8192;

// One sequence's tokens as llama.cpp wants them.
class Batch {
public:
    Batch(int32_t n) : batch_(llama_batch_init(n, 0, 1)) {
        if (batch_.token == nullptr) {
            throw std::bad_alloc();
        }
    }
    ~Batch() { llama_batch_free(batch_); }
    Batch(const Batch &) = delete;
    Batch & operator=(const Batch &) = delete;

    void add(llama_token token, llama_pos position, llama_seq_id sequence, bool want_logits) {
        const int32_t i = batch_.n_tokens++;
        batch_.token[i] = token;
        batch_.pos[i] = position;
        batch_.n_seq_id[i] = 1;
        batch_.seq_id[i][0] = sequence;
        batch_.logits[i] = want_logits;
    }
    const llama_batch & get() const { return batch_; }

private:
    llama_batch batch_;
};

// Flash attention on the CPU sums in half precision, in the order of the KV cells: the same prompt
// gives logits up to 0.01 apart depending on what other slots hold (0 apart without it), and a token
// takes longer (1.6 times at 2,000 tokens of context). There it is used only where a quantized V
// needs it.
llama_flash_attn_type resolve_flash_attn(const Options & options, const Model & model, KvTypes types) {
    if (options.flash_attn != LLAMA_FLASH_ATTN_TYPE_AUTO) {
        return options.flash_attn;
    }
    const bool on_gpu = llama_supports_gpu_offload() && model.n_gpu_layers() != 0;
    return on_gpu || ggml_is_quantized(types.v) ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

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

Decoder::Decoder(std::shared_ptr<Model> model, const Options & options, KvTypes types) : model_(std::move(model)) {
    if (!llama_model_has_decoder(model_->get())) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID, "the model has no decoder: it cannot generate text");
    }
    adapt_threads_ = options.n_threads == 0;
    n_threads_ = adapt_threads_ ? default_thread_count() : options.n_threads;

    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(
        options.n_ctx > 0 ? options.n_ctx : std::min(llama_model_n_ctx_train(model_->get()), default_n_ctx));
    params.n_batch = static_cast<uint32_t>(options.n_batch);
    params.n_ubatch = params.n_batch;
    params.n_seq_max = static_cast<uint32_t>(options.n_slots);
    params.n_threads = n_threads_;
    params.n_threads_batch = n_threads_;
    params.flash_attn_type = resolve_flash_attn(options, *model_, types);
    params.type_k = types.k;
    params.type_v = types.v;
    params.kv_unified = true;  // slots share all cells, so an idle one costs nothing
    params.no_perf = true;
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
    llama_attach_threadpool(context_.get(), threadpool_.get(), threadpool_.get());
    n_batch_ = static_cast<int32_t>(llama_n_batch(context_.get()));
    slots_.resize(static_cast<size_t>(options.n_slots));
    for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].id = static_cast<llama_seq_id>(i);
    }
}

Slot & Decoder::acquire_slot(int32_t slot_id, const std::string & cache_key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto n_slots = static_cast<int32_t>(slots_.size());
    if (slot_id < -1 || slot_id >= n_slots) {
        throw invalid_argument("slot_id " + std::to_string(slot_id) + " is not -1 or 0 to " +
                               std::to_string(n_slots - 1) + " (option n_slots)");
    }
    Slot * chosen = nullptr;
    if (slot_id >= 0) {
        chosen = &slots_[static_cast<size_t>(slot_id)];
        if (chosen->busy) {
            throw invalid_argument("slot " + std::to_string(slot_id) + " is in use by another open stream");
        }
    } else {
        for (Slot & slot : slots_) {
            if (slot.busy) {
                continue;
            }
            if (!cache_key.empty() && slot.cache_key == cache_key) {
                chosen = &slot;
                break;
            }
            if (chosen == nullptr || slot.last_used < chosen->last_used) {
                chosen = &slot;
            }
        }
        if (chosen == nullptr) {
            throw invalid_argument("all " + std::to_string(n_slots) +
                                   " slots are in use by open streams (option n_slots)");
        }
    }
    chosen->busy = true;
    chosen->cache_key = cache_key;
    chosen->last_used = ++clock_;
    return *chosen;
}

void Decoder::release_slot(Slot & slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.busy = false;
    slot.last_used = ++clock_;
}

bool Decoder::is_cancelled(void * decoder) {
    const std::atomic<bool> * flag = static_cast<Decoder *>(decoder)->cancelled_.load(std::memory_order_acquire);
    return flag != nullptr && flag->load(std::memory_order_relaxed);
}

bool Decoder::evict_one_idle_slot() {
    Slot * oldest = nullptr;
    for (Slot & slot : slots_) {
        if (!slot.busy && !slot.cached.empty() && (oldest == nullptr || slot.last_used < oldest->last_used)) {
            oldest = &slot;
        }
    }
    if (oldest == nullptr) {
        return false;
    }
    llama_memory_seq_rm(llama_get_memory(context_.get()), oldest->id, -1, -1);
    oldest->cached.clear();
    return true;
}

size_t Decoder::truncate(Slot & slot, size_t n) {
    if (slot.cached.size() <= n) {
        return slot.cached.size();
    }
    llama_memory_t memory = llama_get_memory(context_.get());
    if (!llama_memory_seq_rm(memory, slot.id, static_cast<llama_pos>(n), -1)) {
        llama_memory_seq_rm(memory, slot.id, -1, -1);  // a recurrent model: start over
        n = 0;
    }
    slot.cached.resize(n);
    return n;
}

size_t Decoder::reuse_prefix(Slot & slot, const std::vector<llama_token> & tokens) {
    const auto shared_with = [&](const Slot & other) {
        const auto end = std::mismatch(tokens.begin(), tokens.end(), other.cached.begin(), other.cached.end());
        return static_cast<size_t>(end.first - tokens.begin());
    };
    const size_t own = truncate(slot, shared_with(slot));
    if (llama_model_is_recurrent(model_->get()) || llama_model_is_hybrid(model_->get())) {
        return own;  // a state, not cells: a part of it cannot be copied
    }
    const Slot * donor = nullptr;
    size_t longest = own;
    for (const Slot & other : slots_) {
        if (const size_t shared = shared_with(other); shared > longest) {
            longest = shared;
            donor = &other;
        }
    }
    if (donor != nullptr) {
        // The cells are shared, not copied.
        llama_memory_seq_cp(llama_get_memory(context_.get()), donor->id, slot.id, static_cast<llama_pos>(own),
                            static_cast<llama_pos>(longest));
        slot.cached.insert(slot.cached.end(), tokens.begin() + static_cast<ptrdiff_t>(own),
                           tokens.begin() + static_cast<ptrdiff_t>(longest));
    }
    return longest;
}

void Decoder::decode(Slot & slot, const llama_token * tokens, int32_t n, int32_t begin, bool want_logits) {
    Batch batch(n);
    for (int32_t i = 0; i < n; ++i) {
        batch.add(tokens[i], begin + i, slot.id, want_logits && i == n - 1);
    }
    slot.cached.reserve(static_cast<size_t>(begin + n));  // so that nothing can fail after the pass

    if (adapt_threads_) {
        const int32_t n_threads = useful_thread_count(n_threads_, llama_model_n_params(model_->get()), n);
        llama_set_n_threads(context_.get(), n_threads, n_threads);
    }
    const LlamaErrorCapture capture;
    int32_t result = llama_decode(context_.get(), batch.get());
    while (result == 1 && evict_one_idle_slot()) {
        result = llama_decode(context_.get(), batch.get());
    }
    if (result == 0) {
        slot.cached.insert(slot.cached.end(), tokens, tokens + n);
        return;
    }
    // llama.cpp leaves what an aborted pass had finished; so that nothing is left half done:
    slot.cached.insert(slot.cached.end(), tokens, tokens + n);
    truncate(slot, static_cast<size_t>(begin));
    switch (result) {
        case 1:
            throw ContextFull(ELIZA_ERR_FFI_FAULT, "context full: no room for " + std::to_string(n) +
                                                       " more tokens after " + std::to_string(begin) +
                                                       " (option n_ctx is " + std::to_string(n_ctx()) +
                                                       ", shared by all open streams)");
        case 2: throw Error(ELIZA_ERR_CANCELLED, "cancelled");
        default:
            throw Error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result) + capture.suffix());
    }
}

}  // namespace eliza
