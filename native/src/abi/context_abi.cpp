// Functions for the library, contexts, options, tokens and embeddings.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "abi/boundary.h"
#include "json_input.h"
#include "log.h"
#include "token_piece.h"

using namespace eliza;

const char * eliza_inference_abi_version(void) { return "12"; }

EliInferenceContext * eliza_inference_create(const char * bundle_dir, char ** err) {
    EliInferenceContext * handle = nullptr;
    guarded(err, [&] {
        require(bundle_dir != nullptr, "bundle_dir is NULL");
        handle = contexts().add(std::make_shared<InferenceContext>(bundle_dir));
    });
    return handle;
}

void eliza_inference_destroy(EliInferenceContext * ctx) {
    guarded(nullptr, [&] {
        if (const auto context = contexts().remove(ctx)) {
            context->close();
            for (EliLlmStream * stream : streams().select([&](const StreamEntry & e) { return e.context == ctx; })) {
                eliza_inference_llm_stream_close(stream);
            }
        }
    });
}

int eliza_inference_last_status(void) { return last_status(); }

void eliza_inference_free_string(char * string) { std::free(string); }

void eliza_inference_free_tokens(int * tokens) { std::free(tokens); }

namespace {

enum class Region { text, voice };

Region parse_region(const char * region) {
    require(region != nullptr, "region is NULL");
    const std::string_view name = region;
    if (name == "text") {
        return Region::text;
    }
    for (const char * voice : {"tts", "asr", "mtp", "dflash", "vad", "wakeword"}) {
        if (name == voice) {
            return Region::voice;
        }
    }
    throw invalid_argument("unknown region \"" + std::string(name) +
                           "\"; regions: text, tts, asr, mtp, dflash, vad, wakeword");
}

template <typename OnText>
int with_region(EliInferenceContext * ctx, const char * region, char ** err, OnText on_text) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        if (parse_region(region) == Region::voice) {
            throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                        "region \"" + std::string(region) + "\": not supported, this library generates text only");
        }
        on_text(context);
    });
}

}  // namespace

int eliza_inference_mmap_acquire(EliInferenceContext * ctx, const char * region, char ** err) {
    return with_region(ctx, region, err, [](InferenceContext & context) { context.model(); });
}

int eliza_inference_mmap_evict(EliInferenceContext * ctx, const char * region, char ** err) {
    return with_region(ctx, region, err, [](InferenceContext & context) { context.unload_if_idle(); });
}

int eliza_inference_set_option(EliInferenceContext * ctx, const char * key, const char * value, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(key != nullptr, "key is NULL");
        require(value != nullptr, "value is NULL");
        context.set_option(key, value);
    });
}

int eliza_inference_describe(EliInferenceContext * ctx, char ** out, char ** err) {
    return guarded(err, [&] {
        require(out != nullptr, "out is NULL");
        const std::string json = ctx == nullptr ? describe_library() : require_context(ctx)->describe();
        *out = new_c_string(json);
        return *out != nullptr ? ELIZA_OK : ELIZA_ERR_OOM;
    });
}

int eliza_inference_set_progress_callback(EliInferenceContext * ctx, eliza_progress_callback callback, void * user,
                                          char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        Progress progress;
        if (callback != nullptr) {
            progress = [callback, user](const char * stage, float fraction) { callback(stage, fraction, user); };
        }
        context.set_progress(std::move(progress));
    });
}

void eliza_inference_set_log_callback(eliza_log_callback callback, void * user) {
    guarded(nullptr, [&] { set_log_callback(callback, user); });
}

int eliza_inference_tokenize_supported(void) { return 1; }

int eliza_inference_tokenize(EliInferenceContext * ctx, const char * text, size_t len, int add_special,
                             int parse_special, int ** out, size_t * out_n, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(text != nullptr || len == 0, "text is NULL");
        require(out != nullptr, "out is NULL");
        require(out_n != nullptr, "out_n is NULL");
        const auto tokens = context.model()->tokenize({text, len}, add_special != 0, parse_special != 0);
        const size_t size = tokens.size() * sizeof(int);
        int * copy = static_cast<int *>(std::malloc(size > 0 ? size : sizeof(int)));
        if (copy == nullptr) {
            throw std::bad_alloc();
        }
        std::memcpy(copy, tokens.data(), size);
        *out = copy;
        *out_n = tokens.size();
    });
}

int32_t eliza_inference_tokenize_into(EliInferenceContext * ctx, const char * text, uint64_t len, int32_t add_special,
                                      int32_t parse_special, int32_t * out, uint64_t cap, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(out != nullptr || cap == 0, "out is NULL");
        const std::string_view bytes = len > 0 ? require_text(text, len, "text") : std::string_view();
        const auto tokens = context.model()->tokenize(bytes, add_special != 0, parse_special != 0);
        if (tokens.size() <= cap) {
            std::copy(tokens.begin(), tokens.end(), out);
        }
        return static_cast<int>(tokens.size());
    });
}

int eliza_inference_detokenize(EliInferenceContext * ctx, const int * tokens, size_t n, int remove_special,
                               int unparse_special, char * out, size_t cap, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        require(out != nullptr || cap == 0, "out is NULL");
        const std::string text = context.model()->detokenize(tokens, n, remove_special != 0, unparse_special != 0);
        if (text.size() < cap) {
            std::memcpy(out, text.c_str(), text.size() + 1);
        }
        return static_cast<int>(text.size());
    });
}

int32_t eliza_inference_vocabulary(EliInferenceContext * ctx, int64_t * ends_out, uint8_t * kinds_out,
                                   uint64_t n_tokens_cap, uint8_t * bytes_out, uint64_t n_bytes_cap,
                                   int64_t * n_bytes_out, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(n_bytes_out != nullptr, "n_bytes_out is NULL");
        const std::shared_ptr<Model> model = context.model();
        const auto n_tokens = static_cast<size_t>(model->n_vocab());
        std::string bytes;
        std::vector<int64_t> ends;
        ends.reserve(n_tokens);
        for (llama_token token = 0; token < model->n_vocab(); ++token) {
            bytes += token_piece(model->vocab(), token, /*special=*/true);
            ends.push_back(static_cast<int64_t>(bytes.size()));
        }
        *n_bytes_out = static_cast<int64_t>(bytes.size());
        if (n_tokens_cap > 0) {
            require(ends_out != nullptr && kinds_out != nullptr && bytes_out != nullptr,
                    "ends_out, kinds_out or bytes_out is NULL");
            if (n_tokens_cap < n_tokens || n_bytes_cap < bytes.size()) {
                throw invalid_argument("expected room for " + std::to_string(n_tokens) + " tokens and " +
                                       std::to_string(bytes.size()) + " bytes, got " + std::to_string(n_tokens_cap) +
                                       " and " + std::to_string(n_bytes_cap));
            }
            std::copy(ends.begin(), ends.end(), ends_out);
            std::copy(bytes.begin(), bytes.end(), bytes_out);
            for (llama_token token = 0; token < model->n_vocab(); ++token) {
                const bool is_end = llama_vocab_is_eog(model->vocab(), token);
                const bool is_control = is_end || model->piece(token).empty();
                kinds_out[token] =
                    static_cast<uint8_t>((is_control ? ELIZA_TOKEN_CONTROL : 0) | (is_end ? ELIZA_TOKEN_END : 0));
            }
        }
        return static_cast<int>(n_tokens);
    });
}

int eliza_inference_embed_supported(void) { return 1; }

namespace {

Pooling pooling_from(int pooling) {
    switch (pooling) {
        case 0: return LLAMA_POOLING_TYPE_UNSPECIFIED;
        case 1: return LLAMA_POOLING_TYPE_MEAN;
        case 2: return LLAMA_POOLING_TYPE_CLS;
        case 3: return LLAMA_POOLING_TYPE_LAST;
        default:
            throw invalid_argument("pooling: expected 0 (the model's), 1 (mean), 2 (first) or 3 (last), got " +
                                   std::to_string(pooling));
    }
}

std::vector<std::string_view> read_texts(const char * const * texts, const uint64_t * lengths, uint64_t n,
                                         const char * name) {
    require(n == 0 || (texts != nullptr && lengths != nullptr), "a list of texts or of their lengths is NULL");
    constexpr uint64_t max_texts = 1024;  // of one call, which cannot be interrupted by its caller's thread
    if (n > max_texts) {
        throw invalid_argument(std::string(name) + ": expected at most " + std::to_string(max_texts) + ", got " +
                               std::to_string(n));
    }
    std::vector<std::string_view> all;
    for (size_t i = 0; i < n; ++i) {
        all.push_back(require_text(texts[i], lengths[i], at(name, i).c_str()));
    }
    return all;
}

}  // namespace

int eliza_inference_embed(EliInferenceContext * ctx, const char * text, size_t len, int pooling, float * out,
                          size_t cap, int * out_dim, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(out_dim != nullptr, "out_dim is NULL");
        require(out != nullptr || cap == 0, "out is NULL");
        const Pooling type = pooling_from(pooling);
        const std::string_view bytes = require_text(text, len, "text");
        *out_dim = context.embedding_size();
        require_room("cap", static_cast<uint64_t>(*out_dim), "numbers", cap);
        const std::vector<float> embedding = context.embed({bytes}, type, Embedder::LongTexts::rejected)[0];
        std::copy(embedding.begin(), embedding.end(), out);
    });
}

int32_t eliza_inference_embed_texts(EliInferenceContext * ctx, const char * const * texts, const uint64_t * lengths,
                                    uint64_t n, int32_t pooling, int32_t in_windows, float * out, uint64_t cap,
                                    int * out_dim, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(out_dim != nullptr, "out_dim is NULL");
        require(out != nullptr || cap == 0, "out is NULL");
        const Pooling type = pooling_from(pooling);
        const std::vector<std::string_view> all = read_texts(texts, lengths, n, "texts");
        *out_dim = context.embedding_size();
        require_room("cap", static_cast<uint64_t>(*out_dim) * n, "numbers", cap);
        const auto long_texts = in_windows != 0 ? Embedder::LongTexts::in_windows : Embedder::LongTexts::rejected;
        for (const std::vector<float> & embedding : context.embed(all, type, long_texts)) {
            out = std::copy(embedding.begin(), embedding.end(), out);
        }
    });
}

int eliza_inference_rerank_supported(void) { return 1; }

int32_t eliza_inference_rerank(EliInferenceContext * ctx, const char * query, uint64_t query_len,
                               const char * const * documents, const uint64_t * lengths, uint64_t n, float * out,
                               uint64_t cap, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(out != nullptr || cap == 0, "out is NULL");
        const std::string_view text = require_text(query, query_len, "query");
        const std::vector<std::string_view> all = read_texts(documents, lengths, n, "documents");
        require_room("cap", n, "numbers", cap);
        const std::vector<float> scores = context.rerank(text, all);
        std::copy(scores.begin(), scores.end(), out);
    });
}

int eliza_inference_token_embeddings_supported(void) { return 1; }

int32_t eliza_inference_token_embeddings(EliInferenceContext * ctx, const int32_t * tokens, const int32_t * roles,
                                         uint64_t n, const int32_t * positions, uint64_t n_positions, float * out,
                                         uint64_t cap, int * out_dim, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        require(positions != nullptr || n_positions == 0, "positions is NULL");
        require(out != nullptr || cap == 0, "out is NULL");
        require(out_dim != nullptr, "out_dim is NULL");
        *out_dim = context.embedding_size();
        if (cap / static_cast<uint64_t>(*out_dim) < n_positions) {
            throw invalid_argument("cap: expected room for " + std::to_string(n_positions) + " times " +
                                   std::to_string(*out_dim) + " numbers, got " + std::to_string(cap));
        }
        context.embed_tokens(tokens, roles, n, positions, n_positions, out);
    });
}

int eliza_inference_llm_eot_supported(void) { return 1; }

int eliza_inference_llm_eot_score(EliInferenceContext * ctx, const int32_t * tokens, size_t n, int32_t target,
                                  float * out_prob, int32_t * out_top, float * out_top_prob, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(tokens != nullptr && n > 0, "expected one token or more, got none");
        const InferenceContext::NextToken next = context.score_next(tokens, n, target);
        write_if_asked(out_prob, next.probability);
        write_if_asked(out_top, next.top);
        write_if_asked(out_top_prob, next.top_probability);
    });
}
