#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/pass/batch.h"
#include "error.h"
#include "log.h"

namespace eliza {
namespace {

// A context for this many tokens is kept for later calls. Longer input gets a larger context, which is freed
// afterwards.
constexpr size_t kept_room = 512;

// llama.cpp stores a row of logits for every token of a pass that computes embeddings. This limits their memory.
constexpr size_t most_row_bytes = size_t{64} << 20;

}  // namespace

Embedder::Embedder(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads)
    : model_(std::move(model)), threads_(std::move(threads)) {}

size_t Embedder::most_tokens() const { return static_cast<size_t>(llama_model_n_ctx_train(model_->get())); }

// Input can be split into several passes if each token depends only on earlier tokens and the context keeps those.
bool Embedder::takes_passes() {
    if (!takes_passes_ && model_->is_causal()) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = params.n_batch = params.n_ubatch = 32;
        params.no_perf = true;
        takes_passes_ = llama_get_memory(model_->new_context(params, "for embeddings").get()) != nullptr;
    }
    return takes_passes_.value_or(false);
}

size_t Embedder::tokens_a_pass() const {
    const size_t row_bytes = static_cast<size_t>(model_->n_vocab()) * sizeof(float);
    return std::clamp<size_t>(most_row_bytes / row_bytes, 32, kept_room);
}

// Ensures that context_ is empty, has room for n_tokens tokens and uses this pooling.
void Embedder::make_context(Pooling pooling, size_t n_tokens) {
    if (context_ != nullptr && pooling_ == pooling && llama_n_ctx(context_.get()) >= n_tokens) {
        if (llama_memory_t memory = llama_get_memory(context_.get())) {
            llama_memory_clear(memory, true);
        }
        return;
    }
    context_.reset();
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(std::max(n_tokens, std::min(kept_room, most_tokens())));
    params.n_batch = takes_passes() ? static_cast<uint32_t>(tokens_a_pass()) : params.n_ctx;
    params.n_ubatch = params.n_batch;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = threads_->size();
    params.embeddings = true;
    params.pooling_type = pooling;
    params.no_perf = true;
    params.abort_callback = is_cancelled;
    params.abort_callback_data = this;
    context_ = model_->new_context(params, "for embeddings");
    threads_->attach_to(context_.get());
    pooling_ = pooling;
}

void Embedder::decode(const std::vector<llama_token> & tokens, size_t begin, size_t end) {
    Batch batch;
    for (size_t i = begin; i < end; ++i) {
        batch.add(tokens[i], static_cast<llama_pos>(i), {0}, true);
    }
    const LlamaErrorCapture capture;
    ComputeThreads::Turn turn(*threads_, context_.get(), model_->n_products(end - begin, 0));
    turn.watch();
    if (const int32_t result = llama_decode(context_.get(), batch.get()); result != 0) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result));
    }
    llama_synchronize(context_.get());
}

// Decodes the tokens, in as many passes as they need, and calls on_vector for each position from `first` to `end`.
void Embedder::each_vector(const std::vector<llama_token> & tokens, size_t first, size_t end,
                           const OnVector & on_vector) {
    make_context(LLAMA_POOLING_TYPE_NONE, tokens.size());
    for (size_t begin = 0; begin < end;) {
        const size_t end_of_pass = std::min(begin + llama_n_batch(context_.get()), tokens.size());
        decode(tokens, begin, end_of_pass);
        for (size_t i = std::max(begin, first); i < std::min(end_of_pass, end); ++i) {
            const float * values = llama_get_embeddings_ith(context_.get(), static_cast<int32_t>(i - begin));
            if (values == nullptr) {
                throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp returned no embedding");
            }
            on_vector(i, values);
        }
        begin = end_of_pass;
    }
}

// llama.cpp pools only tokens of the same pass, so this function pools them. For mean pooling, it returns the sum,
// because embed() scales the vector to length 1.
std::vector<double> Embedder::pool_passes(const std::vector<llama_token> & tokens, Pooling pooling) {
    std::vector<double> pooled(static_cast<size_t>(size()), 0.0);
    const size_t first = pooling == LLAMA_POOLING_TYPE_LAST ? tokens.size() - 1 : 0;
    const size_t end = pooling == LLAMA_POOLING_TYPE_CLS ? 1 : tokens.size();
    each_vector(tokens, first, end, [&](size_t, const float * values) {
        for (size_t j = 0; j < pooled.size(); ++j) {
            pooled[j] += values[j];
        }
    });
    return pooled;
}

std::vector<double> Embedder::pool_one_pass(const std::vector<llama_token> & tokens, Pooling pooling) {
    make_context(pooling, tokens.size());
    decode(tokens, 0, tokens.size());
    const float * values = llama_get_embeddings_seq(context_.get(), 0);
    if (values == nullptr) {
        throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp returned no embedding");
    }
    return {values, values + size()};
}

bool Embedder::is_cancelled(void * embedder) {
    const CancelFlag * flag = static_cast<Embedder *>(embedder)->cancelled_;
    return (flag != nullptr && flag->is_set()) || WorkBeforeExit::must_stop();
}

// The number of tokens is checked before they are read.
void Embedder::check(const char * name, size_t n_tokens) const {
    if (!model_->can_embed()) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                    "llama.cpp cannot compute embeddings with the architecture " + model_->architecture());
    }
    if (n_tokens == 0) {
        throw invalid_argument(std::string(name) + ": expected at least 1 token, got none");
    }
    if (n_tokens > most_tokens()) {
        throw invalid_argument(std::string(name) + ": expected at most " + std::to_string(most_tokens()) +
                               " tokens, got " + std::to_string(n_tokens));
    }
}

// Runs `work`, which decodes n_tokens tokens, while no other call runs.
void Embedder::run(size_t n_tokens, CancelFlag & cancelled, const std::function<void()> & work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
        cancelled.throw_if_set();  // while it waited for another call
        cancelled_ = &cancelled;
        work();
    } catch (...) {
        cancelled_ = nullptr;
        context_.reset();
        cancelled.throw_if_set();
        throw;
    }
    cancelled_ = nullptr;
    if (n_tokens > kept_room) {
        context_.reset();
    }
}

std::vector<float> Embedder::embed(std::string_view text, Pooling pooling, CancelFlag & cancelled) {
    const std::vector<llama_token> tokens = model_->tokenize_whole(text, /*add_special=*/true, /*parse_special=*/false);
    check("text", tokens.size());
    std::vector<double> pooled;
    run(tokens.size(), cancelled,
        [&] { pooled = takes_passes() ? pool_passes(tokens, pooling) : pool_one_pass(tokens, pooling); });
    double sum = 0.0;
    for (const double value : pooled) {
        sum += value * value;
    }
    if (!(sum > 0.0) || !std::isfinite(sum)) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the model's embedding is zero or not finite");
    }
    std::vector<float> embedding;
    embedding.reserve(pooled.size());
    for (const double value : pooled) {
        embedding.push_back(static_cast<float>(value / std::sqrt(sum)));
    }
    return embedding;
}

void Embedder::embed_tokens(const llama_token * tokens, size_t n, const int32_t * positions, size_t n_positions,
                            float * out, CancelFlag & cancelled) {
    check("tokens", n);
    model_->check_tokens(tokens, n);
    if (n_positions == 0 || n_positions > n) {
        throw invalid_argument("positions: expected 1 to " + std::to_string(n) + ", got " +
                               std::to_string(n_positions));
    }
    for (size_t i = 0; i < n_positions; ++i) {
        const int64_t least = i == 0 ? 0 : int64_t{positions[i - 1]} + 1;
        const int64_t most = static_cast<int64_t>(n) - 1;
        if (positions[i] < least || positions[i] > most) {
            throw invalid_argument("positions[" + std::to_string(i) + "]: expected " + std::to_string(least) + " to " +
                                   std::to_string(most) + ", got " + std::to_string(positions[i]));
        }
    }
    const auto first = static_cast<size_t>(positions[0]);
    const auto end = static_cast<size_t>(positions[n_positions - 1]) + 1;
    std::vector<float> rows;  // on failure, `out` is not written
    run(n, cancelled, [&] {
        const int32_t * wanted = positions;
        each_vector({tokens, tokens + n}, first, end, [&](size_t position, const float * values) {
            if (position == static_cast<size_t>(*wanted)) {
                rows.insert(rows.end(), values, values + size());
                ++wanted;
            }
        });
    });
    std::copy(rows.begin(), rows.end(), out);
}

}  // namespace eliza
