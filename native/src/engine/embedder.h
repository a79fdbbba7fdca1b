// Computes embeddings, one vector for each text, and relevance scores, in a separate llama_context. Safe from any
// thread.
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
#include "engine/pass/layer_rows.h"

namespace eliza {

using Pooling = enum llama_pooling_type;  // "enum" because llama.h also has a function with this name

class Embedder {
public:
    Embedder(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads);

    // Returns the number of values in an embedding.
    int32_t size() const { return llama_model_n_embd_out(model_->get()); }

    // What happens to a text with more tokens than the context length that the model was trained with: an Error, or the
    // weighted average of the embeddings of overlapping windows.
    enum class LongTexts { rejected, in_windows };

    // Returns the embeddings, scaled to length 1. Short texts share forward passes. LLAMA_POOLING_TYPE_UNSPECIFIED is
    // the model's own pooling. Throws an Error if a text has no tokens. Setting `cancelled` ends the call.
    std::vector<std::vector<float>> embed(const std::vector<std::string_view> & texts, Pooling pooling,
                                          LongTexts long_texts, CancelFlag & cancelled);

    // Returns the relevance of each document for the query. Throws an Error if the model is not a reranker, or a query
    // with a document has too many tokens.
    std::vector<float> rerank(std::string_view query, const std::vector<std::string_view> & documents,
                              CancelFlag & cancelled);

    // Writes the model's values for the tokens at these ascending positions, size() for each, as they are. `roles` is
    // NULL, except for models that read the roles of tokens; see eliza_inference_token_embeddings(). Throws an Error
    // for tokens outside the vocabulary, positions outside the tokens or options, wrong roles, and too many tokens.
    void embed_tokens(const llama_token * tokens, const int32_t * roles, size_t n, const int32_t * positions,
                      size_t n_positions, float * out, CancelFlag & cancelled);

private:
    using Tokens = std::vector<llama_token>;
    using OnVector = std::function<void(size_t position, const float * values)>;

    static bool is_cancelled(void * embedder);
    static bool on_tensor(ggml_tensor * tensor, bool ask, void * embedder);
    size_t most_tokens() const;  // in one sequence
    bool takes_passes();
    size_t tokens_a_pass() const;
    Pooling own_pooling() const;
    void make_context(Pooling pooling, size_t n_tokens);
    void check(const std::string & name, size_t n_tokens) const;
    void run(CancelFlag & cancelled, const std::function<void()> & work);
    std::vector<Tokens> windows_of(std::string_view text) const;
    Tokens pair_of(std::string_view query, std::string_view document) const;
    std::vector<std::vector<float>> pool(const std::vector<Tokens> & sequences, Pooling pooling);
    void pool_one_pass(const std::vector<Tokens> & sequences, size_t begin, size_t end, Pooling pooling,
                       std::vector<std::vector<float>> & out);
    std::vector<float> pooled_values(llama_seq_id sequence) const;
    std::vector<float> rank_passes(const Tokens & tokens);
    std::vector<float> pool_passes(const Tokens & tokens, Pooling pooling);
    void each_vector(const Tokens & tokens, size_t first, size_t end, bool may_stop, const OnVector & on_vector);
    void each_score(const Tokens & tokens, const int32_t * roles, size_t first, size_t end, const OnVector & on_vector);
    void require_roles(bool has_roles) const;
    void decode(size_t n_tokens, const std::function<int32_t()> & decode_batch);
    void decode(class Batch & batch);

    const std::shared_ptr<Model> model_;
    const std::shared_ptr<ComputeThreads> threads_;       // must outlive the context
    std::atomic<const CancelFlag *> cancelled_{nullptr};  // of the running call
    std::mutex mutex_;                                    // guards the members below
    std::optional<bool> takes_passes_;
    LayerRows states_;
    std::optional<bool> stops_before_head_;  // a pass may stop after the final norm, whose output is the embedding
    llama_context_ptr context_;
    Pooling pooling_ = LLAMA_POOLING_TYPE_UNSPECIFIED;
};

}  // namespace eliza
