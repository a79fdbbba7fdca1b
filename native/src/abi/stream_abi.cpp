// The C functions of streams.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "abi/boundary.h"
#include "json_input.h"

using namespace eliza;

static_assert(sizeof(eliza_llm_stream_config_t) == 80, "the layout elizaOS's clients write");

int eliza_inference_llm_stream_supported(void) { return 1; }
int eliza_inference_llm_mtp_supported(void) { return 1; }
int eliza_inference_llm_kv_quant_supported(void) { return 1; }

static bool is_set(const char * text) { return text != nullptr && *text != '\0'; }

InferenceContext::OpenRequest eliza::read_config(const eliza_llm_stream_config_t * cfg) {
    InferenceContext::OpenRequest request;
    if (cfg == nullptr) {
        return request;
    }
    require(cfg->max_tokens >= 0, "max_tokens is negative");
    require(std::isfinite(cfg->temperature), "temperature is not a finite number");
    require(std::isfinite(cfg->top_p), "top_p is not a finite number");
    require(std::isfinite(cfg->repeat_penalty) && cfg->repeat_penalty >= 0.0f,
            "repeat_penalty is not a finite number of 0 or more");
    request.stream.max_tokens = cfg->max_tokens;
    request.stream.sampling.temperature = cfg->temperature;
    request.stream.sampling.top_p = cfg->top_p;
    request.stream.sampling.top_k = cfg->top_k;
    request.stream.sampling.repeat_penalty = cfg->repeat_penalty;
    request.stream.sampling.disable_thinking = cfg->disable_thinking != 0;
    request.stream.slot.id = cfg->slot_id;
    request.stream.slot.cache_key = is_set(cfg->prompt_cache_key) ? cfg->prompt_cache_key : "";
    request.stream.gbnf_grammar = is_set(cfg->gbnf_grammar) ? cfg->gbnf_grammar : "";
    request.n_gpu_layers = cfg->n_gpu_layers;
    constexpr int32_t longest_draft = 256;
    require(cfg->draft_min >= 0 && cfg->draft_max >= 0, "draft_min or draft_max is negative");
    require(cfg->draft_max <= longest_draft, "draft_max is above 256");
    if (cfg->draft_min > 0 && cfg->draft_max > 0) {
        require(cfg->draft_min <= cfg->draft_max, "draft_min is above draft_max");
        request.stream.draft = {static_cast<size_t>(cfg->draft_min), cfg->draft_max,
                                is_set(cfg->mtp_drafter_path) ? cfg->mtp_drafter_path : ""};
    }
    if (is_set(cfg->cache_type_k)) {
        request.kv_types.k = kv_type_from_name("cache_type_k", cfg->cache_type_k);
    }
    if (is_set(cfg->cache_type_v)) {
        request.kv_types.v = kv_type_from_name("cache_type_v", cfg->cache_type_v);
    }
    return request;
}

namespace {

// Writes consecutive steps into the caller's buffers for tokens and text.
struct StepWriter {
    int32_t * tokens;
    size_t tokens_cap;
    char * text;
    size_t text_cap;
    size_t n_tokens = 0;
    size_t n_bytes = 0;

    bool has_room(const Stream::Step & step) const { return n_bytes + step.text.size() < text_cap; }
    // Writes a step. Returns whether it is the last step.
    bool write(const Stream::Step & step) {
        if (step.token) {
            tokens[n_tokens++] = *step.token;
        }
        std::memcpy(text + n_bytes, step.text.c_str(), step.text.size() + 1);
        n_bytes += step.text.size();
        return step.final;
    }
};

// Writes the next step, and then more steps while there is room. After most_us microseconds, it writes only steps that
// need no forward pass. Stops after a step that completes a stop string. Returns true after the last step of the
// generation.
bool write_steps(Stream & stream, int64_t most_us, StepWriter & writer) {
    const int64_t start = llama_time_us();
    const auto limits = [&] {
        const int64_t left_us = start + most_us - llama_time_us();
        return Stream::StepLimits{left_us > 0 ? writer.tokens_cap - writer.n_tokens : 1, left_us};
    };
    const Stream::Step & step = stream.peek(limits());
    if (!writer.has_room(step)) {
        throw Error(ELIZA_ERR_TEXT_CAP, "text_cap: expected room for the next token's text, " +
                                            std::to_string(step.text.size() + 1) + " bytes, got " +
                                            std::to_string(writer.text_cap) + "; the token waits for the next call");
    }
    bool is_final = writer.write(step), completes_stop = step.completes_stop;
    stream.take();
    while (!is_final && !completes_stop && writer.n_tokens < writer.tokens_cap) {
        const bool in_time = llama_time_us() - start < most_us;
        if (!in_time && !stream.has_step() && !stream.next_is_ready()) {
            break;
        }
        const Stream::Step * next = stream.peek_ready(limits());
        if (next == nullptr || !writer.has_room(*next)) {
            break;  // the next call returns the step or reports the error
        }
        is_final = writer.write(*next);
        completes_stop = next->completes_stop;
        stream.take();
    }
    return is_final;
}

// The common part of eliza_inference_llm_stream_next() and eliza_inference_llm_stream_next_many().
int pull(EliLlmStream * stream, int64_t most_us, StepWriter writer, uint64_t * num_tokens_out, int32_t * drafted_out,
         int32_t * accepted_out, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(writer.tokens != nullptr, "tokens_out is NULL");
        require(writer.tokens_cap > 0, "tokens_cap is 0: room for one token is needed");
        require(num_tokens_out != nullptr, "num_tokens_out is NULL");
        require(writer.text != nullptr, "text_out is NULL");
        const int64_t drafted_before = s.tokens_drafted();
        const int64_t accepted_before = s.tokens_accepted();
        const bool is_final = write_steps(s, most_us, writer);
        *num_tokens_out = writer.n_tokens;
        write_if_asked(drafted_out, s.tokens_drafted() - drafted_before);
        write_if_asked(accepted_out, s.tokens_accepted() - accepted_before);
        return is_final ? 1 : 0;
    });
}

}  // namespace

EliLlmStream * eliza::open_stream(EliInferenceContext * ctx, InferenceContext::OpenRequest request) {
    auto entry = std::make_shared<StreamEntry>();
    entry->stream = require_context(ctx)->open_stream(std::move(request));
    entry->context = ctx;
    EliLlmStream * handle = streams().add(std::move(entry));
    // If another thread has just destroyed the context, it may not have seen this stream, so close it here.
    if (contexts().find(ctx) == nullptr) {
        eliza_inference_llm_stream_close(handle);
        throw invalid_argument("the context is destroyed");
    }
    return handle;
}

EliLlmStream * eliza_inference_llm_stream_open(EliInferenceContext * ctx, const eliza_llm_stream_config_t * cfg,
                                               char ** err) {
    EliLlmStream * handle = nullptr;
    guarded(err, [&] { handle = open_stream(ctx, read_config(cfg)); });
    return handle;
}

int eliza_inference_llm_stream_prefill(EliLlmStream * stream, const int32_t * tokens, size_t n, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        s.prefill(tokens, n);
    });
}

int32_t eliza_inference_llm_stream_append(EliLlmStream * stream, const int32_t * tokens, uint64_t n, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        s.append(tokens, n);
    });
}

int32_t eliza_inference_llm_stream_prefill_logprobs(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                                    int32_t n_top, eliza_token_logprob_t * out, uint64_t cap,
                                                    char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        require(out != nullptr || cap == 0, "out is NULL");
        s.prefill_logprobs(tokens, n, n_top, out, cap);
    });
}

int eliza_inference_llm_token_mask_supported(void) { return 1; }

int eliza_inference_llm_stream_set_token_mask(EliLlmStream * stream, const uint32_t * bits, size_t n_words,
                                              char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(bits != nullptr || n_words == 0, "bits is NULL");
        if (bits == nullptr) {
            s.clear_token_mask();
        } else {
            s.set_token_mask(bits, n_words);
        }
    });
}

int32_t eliza_inference_llm_stream_set_forced_tokens(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                                     char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        s.set_forced_tokens(tokens, n);
    });
}

int eliza_inference_llm_stream_decode(EliLlmStream * stream, char ** err) {
    return with_stream(stream, err, [](Stream & s) { s.decode(); });
}

int eliza_inference_llm_stream_next(EliLlmStream * stream, int32_t * tokens_out, size_t tokens_cap,
                                    size_t * num_tokens_out, char * text_out, size_t text_cap, int32_t * drafted_out,
                                    int32_t * accepted_out, char ** err) {
    uint64_t n_tokens = 0;
    const int status = pull(stream, 0, {tokens_out, tokens_cap, text_out, text_cap},
                            num_tokens_out != nullptr ? &n_tokens : nullptr, drafted_out, accepted_out, err);
    if (status >= 0) {
        *num_tokens_out = static_cast<size_t>(n_tokens);
    }
    return status;
}

int32_t eliza_inference_llm_stream_next_many(EliLlmStream * stream, uint32_t most_ms, int32_t * tokens_out,
                                             uint64_t tokens_cap, uint64_t * num_tokens_out, char * text_out,
                                             uint64_t text_cap, int32_t * drafted_out, int32_t * accepted_out,
                                             char ** err) {
    return pull(stream, int64_t(1000) * most_ms,
                {tokens_out, static_cast<size_t>(tokens_cap), text_out, static_cast<size_t>(text_cap)}, num_tokens_out,
                drafted_out, accepted_out, err);
}

int32_t eliza_inference_llm_stream_set_stops(EliLlmStream * stream, const char * const * stops, uint64_t n_stops,
                                             char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(stops != nullptr || n_stops == 0, "stops is NULL");
        std::vector<std::string> copied = require_texts(stops, n_stops, "stops");
        for (size_t i = 0; i < copied.size(); ++i) {
            require(!copied[i].empty(), (at("stops", i) + " is empty").c_str());
        }
        s.set_stops(std::move(copied));
    });
}

int eliza_inference_llm_stream_generate(EliLlmStream * stream, int32_t max_tokens, eliza_token_callback on_token,
                                        void * user, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(on_token != nullptr, "on_token is NULL");
        require(max_tokens >= 0, "max_tokens is negative");
        const bool ended = s.generate(max_tokens, [&](const Stream::Step & step) {
            return on_token(step.token.value_or(-1), step.text.c_str(), user) == 0;
        });
        if (!ended) {
            throw Error(ELIZA_ERR_CANCELLED, "cancelled by the callback");
        }
    });
}

int eliza_inference_set_verifier_callback(EliInferenceContext * ctx, eliza_verifier_callback callback, void * user,
                                          char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) { context.set_verifier(callback, user); });
}

int eliza_inference_llm_stream_cancel(EliLlmStream * stream) {
    return guarded(nullptr, [&] { require_stream(stream)->cancel(); });
}

int eliza_inference_llm_stream_reset(EliLlmStream * stream) {
    return with_stream(stream, nullptr, [](Stream & s) { s.reset(); });
}

int eliza_inference_llm_stream_reset_keep(EliLlmStream * stream, int32_t n_keep) {
    return with_stream(stream, nullptr, [&](Stream & s) { return s.reset_keep(n_keep); });
}

int eliza_inference_llm_stream_save_slot(EliLlmStream * stream, const char * file, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(file != nullptr && *file != '\0', "file is NULL or empty");
        s.save_slot(file);
    });
}

int eliza_inference_llm_stream_restore_slot(EliLlmStream * stream, const char * file, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(file != nullptr && *file != '\0', "file is NULL or empty");
        s.restore_slot(file);
    });
}

void eliza_inference_llm_stream_close(EliLlmStream * stream) {
    guarded(nullptr, [&] {
        if (const auto entry = streams().remove(stream)) {
            entry->close();
        }
    });
}

const char * eliza_inference_last_error(EliLlmStream * stream) {
    thread_local std::string text;
    guarded(nullptr, [&] {
        text.clear();
        text = require_stream(stream)->last_error();
    });
    return text.c_str();
}

int eliza_inference_llm_stream_stats(EliLlmStream * stream, eliza_llm_stream_stats_t * stats, size_t sizeof_stats) {
    return with_stream(stream, nullptr, [&](Stream & s) {
        require(stats != nullptr, "stats is NULL");
        write_stats(s, stats, sizeof_stats);
    });
}

int eliza_inference_llm_stream_set_sampling(EliLlmStream * stream, const char * json, size_t len, char ** err) {
    return with_stream(stream, err, [&](Stream & s) { s.set_sampling(require_text(json, len, "json")); });
}

int eliza_inference_llm_stream_set_logprobs(EliLlmStream * stream, int n_top, char ** err) {
    return with_stream(stream, err, [&](Stream & s) { s.set_logprobs(n_top); });
}

int eliza_inference_llm_stream_take_logprobs(EliLlmStream * stream, eliza_token_logprob_t * out, size_t cap,
                                             char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(out != nullptr || cap == 0, "out is NULL");
        return static_cast<int>(s.take_logprobs(out, cap));
    });
}

int eliza_inference_llm_stream_describe_chain(EliLlmStream * stream, char ** out, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(out != nullptr, "out is NULL");
        *out = new_c_string(s.describe_chain());
        return *out != nullptr ? ELIZA_OK : ELIZA_ERR_OOM;
    });
}
