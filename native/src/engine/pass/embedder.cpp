#include "engine/pass/embedder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/pass/batch.h"
#include "engine/pass/threads.h"
#include "error.h"
#include "log.h"
#include "platform/machine.h"

namespace eliza {
namespace {

// Tokens that a context is made for, so that it serves many texts: this, or twice that often enough.
constexpr size_t least_room = 512;

}  // namespace

Embedder::Embedder(std::shared_ptr<Model> model, const Options & options)
    : model_(std::move(model)), n_threads_(std::min(options.n_threads, usable_cpu_count())) {}

size_t Embedder::most_tokens() const { return static_cast<size_t>(llama_model_n_ctx_train(model_->get())); }

void Embedder::make_context(Pooling pooling, size_t n_tokens) {
    if (context_ != nullptr && pooling_ == pooling && llama_n_batch(context_.get()) >= n_tokens) {
        return;
    }
    context_.reset();
    size_t room = least_room;
    while (room < n_tokens) {
        room *= 2;
    }
    llama_context_params params = llama_context_default_params();
    // Models that read both ways want a whole text in one pass.
    params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(std::min(room, most_tokens()));
    params.n_seq_max = 1;
    params.embeddings = true;
    params.pooling_type = pooling;
    params.no_perf = true;
    context_ = model_->new_context(params, "for embeddings");
    pooling_ = pooling;
}

std::vector<float> Embedder::embed(std::string_view text, Pooling pooling) {
    if (!model_->can_embed()) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "llama.cpp cannot embed with a model of " + model_->architecture());
    }
    const std::vector<llama_token> tokens = model_->tokenize(text, /*add_special=*/true, /*parse_special=*/false);
    if (tokens.empty()) {
        throw invalid_argument("the text has no tokens to embed");
    }
    if (tokens.size() > most_tokens()) {
        throw invalid_argument("the text has " + std::to_string(tokens.size()) + " tokens, the model takes " +
                               std::to_string(most_tokens()));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    make_context(pooling, tokens.size());
    Batch batch;
    for (size_t i = 0; i < tokens.size(); ++i) {
        batch.add(tokens[i], static_cast<llama_pos>(i), {0}, true);
    }
    if (llama_memory_t memory = llama_get_memory(context_.get())) {
        llama_memory_clear(memory, true);
    }
    const int32_t n_threads =
        n_threads_ > 0
            ? n_threads_
            : useful_thread_count(usable_core_count(), llama_model_n_params(model_->get()), batch.get().n_tokens);
    llama_set_n_threads(context_.get(), n_threads, n_threads);
    const LlamaErrorCapture capture;
    if (const int32_t result = llama_decode(context_.get(), batch.get()); result != 0) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result));
    }
    const float * values = llama_get_embeddings_seq(context_.get(), 0);
    if (values == nullptr) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "the model gave no embedding");
    }
    std::vector<float> embedding(values, values + size());
    double sum = 0.0;
    for (const float value : embedding) {
        sum += static_cast<double>(value) * value;
    }
    if (!(sum > 0.0) || !std::isfinite(sum)) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the model's embedding has no direction");
    }
    for (float & value : embedding) {
        value = static_cast<float>(value / std::sqrt(sum));
    }
    return embedding;
}

}  // namespace eliza
