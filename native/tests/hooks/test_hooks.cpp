// Slow, obvious implementations for the Python tests to compare with: plain llama.cpp logits, and the native trie's
// allowed tokens along a walk.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "constraint/token_trie_constraint.h"
#include "engine/model/model.h"
#include "llama-cpp.h"
#include "log.h"
#include "sampling/sampler_chain.h"

#define ELIZA_TEST_API extern "C" __attribute__((visibility("default")))

using namespace eliza;

// Decodes n tokens with a separate llama_context and writes the logits after the last one. Returns the vocabulary size,
// or -1.
ELIZA_TEST_API int eliza_test_logits(const char * model_path, const int32_t * tokens, size_t n, float * logits_out,
                                     size_t cap) {
    static std::string loaded_path;
    static llama_model_ptr model;
    init_backend();
    if (model == nullptr || loaded_path != model_path) {
        model.reset(llama_model_load_from_file(model_path, llama_model_default_params()));
        loaded_path = model_path;
    }
    if (model == nullptr || n == 0) {
        return -1;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(n + 8);
    params.n_batch = params.n_ctx;
    params.n_threads = params.n_threads_batch = 1;
    // As the engine does on the CPU.
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    const llama_context_ptr context(llama_init_from_model(model.get(), params));
    std::vector<llama_token> copy(tokens, tokens + n);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
    if (context == nullptr || cap < static_cast<size_t>(n_vocab) ||
        llama_decode(context.get(), llama_batch_get_one(copy.data(), static_cast<int32_t>(n))) != 0) {
        return -1;
    }
    std::memcpy(logits_out, llama_get_logits_ith(context.get(), -1), static_cast<size_t>(n_vocab) * sizeof(float));
    return n_vocab;
}

// Builds the trie. For i = 0 .. n_tokens, appends to allowed_out the allowed tokens after the first i tokens, and
// writes their number to counts_out[i], or SIZE_MAX once the span has ended. Returns 0, -1 if the payload is rejected,
// or -2 if allowed_out is too small.
ELIZA_TEST_API int eliza_test_trie_walk(const char * payload, size_t len, int32_t n_vocab, const int32_t * tokens,
                                        size_t n_tokens, int32_t * allowed_out, size_t cap, size_t * counts_out) {
    try {
        TokenTrieConstraint constraint(TrieCache::shared().get({payload, len}, n_vocab));
        size_t written = 0;
        for (size_t i = 0; i <= n_tokens; ++i) {
            counts_out[i] = SIZE_MAX;
            if (constraint.active()) {
                const TokenSpan allowed = constraint.allowed();
                if (written + allowed.size > cap) {
                    return -2;
                }
                std::copy(allowed.begin(), allowed.end(), allowed_out + written);
                written += allowed.size;
                counts_out[i] = allowed.size;
            }
            if (i < n_tokens) {
                constraint.accept(tokens[i]);
            }
        }
        return 0;
    } catch (const std::exception &) {
        return -1;
    }
}

// Runs the sampler chain for a model's vocabulary over n candidates: token ids[i] with logits[i]. For the settings see
// eliza_inference_llm_stream_set_sampling. First the chain accepts the given tokens. Writes the remaining candidates
// (ids, logits and probabilities; there must be room for n) and the selected token. Returns the number of remaining
// candidates, or -1 and a message.
ELIZA_TEST_API int eliza_test_chain(const char * model_path, const char * settings, const int32_t * ids,
                                    const float * logits, size_t n, const int32_t * accepted, size_t n_accepted,
                                    int32_t * ids_out, float * logits_out, float * probs_out, int32_t * selected_out,
                                    char * error_out, size_t error_cap) {
    try {
        static std::map<std::string, std::shared_ptr<Model>> models;
        std::shared_ptr<Model> & model = models[model_path];
        if (model == nullptr) {
            model = Model::load(model_path, {});
        }
        SamplerChain chain(model->vocab(), parse_sampling({}, settings));
        for (size_t i = 0; i < n_accepted; ++i) {
            chain.accept(accepted[i]);
        }
        Candidates candidates;
        llama_token_data_array & array = candidates.fill(logits, ids, n);
        *selected_out = chain.sample(array);
        for (size_t i = 0; i < array.size; ++i) {
            ids_out[i] = array.data[i].id;
            logits_out[i] = array.data[i].logit;
            probs_out[i] = array.data[i].p;
        }
        return static_cast<int>(array.size);
    } catch (const std::exception & error) {
        std::snprintf(error_out, error_cap, "%s", error.what());
        return -1;
    }
}
