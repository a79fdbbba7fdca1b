// Computes embeddings, one vector for each text, in a separate llama_context. Safe from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "cancel_flag.h"
#include "engine/base/compute_threads.h"
#include "engine/model/model.h"

namespace eliza {

using Pooling = enum llama_pooling_type;  // "enum" because llama.h also has a function with this name

class Embedder {
public:
    Embedder(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads);

    // Returns the number of values in an embedding.
    int32_t size() const { return llama_model_n_embd_out(model_->get()); }

    // Returns the embedding, scaled to length 1. Throws an Error if the text has no tokens, or more tokens than the
    // context length that the model was trained with. Setting `cancelled` ends the call.
    std::vector<float> embed(std::string_view text, Pooling pooling, CancelFlag & cancelled);

    // Writes the model's values for the tokens at these ascending positions, size() for each, as they are. Throws an
    // Error for tokens outside the vocabulary, positions outside the tokens, and too many tokens.
    void embed_tokens(const llama_token * tokens, size_t n, const int32_t * positions, size_t n_positions, float * out,
                      CancelFlag & cancelled);

private:
    using OnVector = std::function<void(size_t position, const float * values)>;

    static bool is_cancelled(void * embedder);
    size_t most_tokens() const;  // limit for one call of embed()
    bool takes_passes();
    size_t tokens_a_pass() const;
    void make_context(Pooling pooling, size_t n_tokens);
    void check(const char * name, size_t n_tokens) const;
    void run(size_t n_tokens, CancelFlag & cancelled, const std::function<void()> & work);
    void each_vector(const std::vector<llama_token> & tokens, size_t first, size_t end, const OnVector & on_vector);
    std::vector<double> pool_passes(const std::vector<llama_token> & tokens, Pooling pooling);
    std::vector<double> pool_one_pass(const std::vector<llama_token> & tokens, Pooling pooling);
    void decode(const std::vector<llama_token> & tokens, size_t begin, size_t end);

    const std::shared_ptr<Model> model_;
    const std::shared_ptr<ComputeThreads> threads_;       // must outlive the context
    std::atomic<const CancelFlag *> cancelled_{nullptr};  // of the running call
    std::mutex mutex_;                                    // guards the members below
    std::optional<bool> takes_passes_;
    llama_context_ptr context_;
    Pooling pooling_ = LLAMA_POOLING_TYPE_UNSPECIFIED;
};

}  // namespace eliza
