// Embeddings: one vector for a text, in a llama_context of their own. Safe from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "engine/options.h"

namespace eliza {

using Pooling = enum llama_pooling_type;  // of which llama.h has a function, too

class Embedder {
public:
    Embedder(std::shared_ptr<Model> model, const Options & options);

    // Numbers of one embedding.
    int32_t size() const { return llama_model_n_embd_out(model_->get()); }

    // Of unit length. Throws Error where the text has no tokens, or more than the model was trained on.
    std::vector<float> embed(std::string_view text, Pooling pooling);

private:
    size_t most_tokens() const;  // of a text
    void make_context(Pooling pooling, size_t n_tokens);

    std::shared_ptr<Model> model_;
    int32_t n_threads_;  // 0: as many as a text has work for
    std::mutex mutex_;   // guards the next two
    llama_context_ptr context_;
    Pooling pooling_ = LLAMA_POOLING_TYPE_UNSPECIFIED;
};

}  // namespace eliza
