// Choosing in one call.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "abi/boundary.h"
#include "abi/choices_handles.h"
#include "abi/one_call.h"
#include "json_input.h"

using namespace eliza;

namespace {

void check_mode(int32_t mode, const char * name) {
    if (mode != ELIZA_TRIE_ARGMAX && mode != ELIZA_TRIE_SAMPLE && mode != ELIZA_TRIE_BEST_LEAF) {
        throw invalid_argument(std::string(name) + " is " + std::to_string(mode) + ", expected an eliza_trie_mode");
    }
}

eliza_choose_options_t read_options(const eliza_choose_options_t * given) {
    const eliza_choose_options_t options = read_options_struct(given);
    check_mode(options.mode, "options.mode");
    require(std::isfinite(options.temperature) && options.temperature >= 0.0f,
            "options.temperature is not a finite number of 0 or more");
    return options;
}

std::vector<std::string> read_labels(const char * const * labels, uint64_t n_labels) {
    require(labels != nullptr && n_labels > 0, "there are no labels");
    return require_texts(labels, n_labels, "labels");
}

eliza_llm_stream_config_t stream_config(const eliza_choose_options_t & options) {
    eliza_llm_stream_config_t config = any_slot(options.cache_key);
    if (options.mode == ELIZA_TRIE_SAMPLE) {
        config.temperature = options.temperature == 0.0f ? 1.0f : options.temperature;
    }
    return config;
}

// Chooses a label after the prompt of n_prompt tokens that the stream has just read.
eliza_choice_t choose(Stream & stream, size_t n_prompt, const PreparedChoices & labels, int mode,
                      std::vector<double> * logprobs, std::vector<llama_token> & tokens) {
    stream.set_choices(labels, mode | ELIZA_TRIE_STOP_AT_LEAF);
    if (logprobs != nullptr) {
        *logprobs = stream.leaf_scores();
    }
    stream.generate(0, [&](const Stream::Step & step) {
        if (step.token) {
            tokens.push_back(*step.token);
        }
        return true;
    });
    const auto & leaf = stream.leaf();
    if (!leaf.has_value()) {
        throw Error(ELIZA_ERR_CONTEXT_FULL, "context full: no room for the rest of the label (option n_ctx)");
    }
    const eliza_llm_stream_stats_t stats = stream.stats();
    eliza_choice_t result{};
    result.label = leaf->index;
    result.forward_passes = static_cast<int32_t>(stats.forward_passes - stats.prompt_passes);
    result.prompt_tokens = static_cast<int32_t>(n_prompt);
    result.prompt_tokens_cached = static_cast<int32_t>(stats.prompt_tokens_reused);
    result.logprob = leaf->logprob;
    return result;
}

int choose_one(EliInferenceContext * ctx, const char * prompt, std::shared_ptr<const PreparedChoices> given,
               const eliza_choose_options_t & options, eliza_choice_t * result, double * probabilities_out,
               char ** err) {
    return after_prompt(ctx, prompt, std::move(given), options.plain_prompt != 0, stream_config(options), err,
                        [&](Stream & stream, size_t n_prompt, const std::shared_ptr<const PreparedChoices> & labels) {
                            std::vector<double> logprobs;
                            std::vector<llama_token> tokens;
                            *result = choose(stream, n_prompt, *labels, options.mode,
                                             probabilities_out != nullptr ? &logprobs : nullptr, tokens);
                            std::transform(logprobs.begin(), logprobs.end(), probabilities_out,
                                           [](double logprob) { return std::exp(logprob); });
                            return ELIZA_OK;
                        });
}

}  // namespace

EliChoices * eliza_inference_prepare_labels(EliInferenceContext * ctx, const char * const * labels, uint64_t n_labels,
                                            char ** err) {
    EliChoices * handle = nullptr;
    with_context(ctx, err, [&](InferenceContext & context) {
        handle = choices_handles.add(context.prepare_choices(read_labels(labels, n_labels)));
    });
    return handle;
}

int32_t eliza_inference_choose(EliInferenceContext * ctx, const char * prompt, const char * const * labels,
                               uint64_t n_labels, const eliza_choose_options_t * options, eliza_choice_t * result,
                               double * probabilities_out, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        require(result != nullptr, "result is NULL");
        const eliza_choose_options_t read = read_options(options);
        return choose_one(ctx, prompt, context.prepare_choices(read_labels(labels, n_labels)), read, result,
                          probabilities_out, err);
    });
}

int32_t eliza_inference_choose_prepared(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                                        const eliza_choose_options_t * options, eliza_choice_t * result,
                                        double * probabilities_out, char ** err) {
    return guarded(err, [&] {
        require(result != nullptr, "result is NULL");
        const eliza_choose_options_t read = read_options(options);
        return choose_one(ctx, prompt, require_choices(labels), read, result, probabilities_out, err);
    });
}

int32_t eliza_inference_llm_stream_choose(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                          EliChoices * choices, int32_t mode, eliza_choice_t * result,
                                          int32_t * tokens_out, uint64_t tokens_cap, double * logprobs_out,
                                          uint64_t logprobs_cap, eliza_llm_stream_stats_t * stats,
                                          uint64_t sizeof_stats, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(tokens != nullptr || n == 0, "tokens is NULL");
        require(result != nullptr, "result is NULL");
        require(tokens_out != nullptr || tokens_cap == 0, "tokens_out is NULL");
        check_mode(mode, "mode");
        const std::shared_ptr<const PreparedChoices> labels = require_choices(choices);
        require_room("tokens_cap", labels->longest(), "tokens", tokens_cap);
        if (logprobs_out != nullptr) {
            require_room("logprobs_cap", labels->trie()->trie.n_leaves(), "labels", logprobs_cap);
        }
        s.prefill(tokens, n);
        std::vector<double> logprobs;
        std::vector<llama_token> written;
        const eliza_choice_t chosen =
            choose(s, n, *labels, mode, logprobs_out != nullptr ? &logprobs : nullptr, written);
        *result = chosen;
        std::copy(written.begin(), written.end(), tokens_out);
        std::copy(logprobs.begin(), logprobs.end(), logprobs_out);
        if (stats != nullptr) {
            write_stats(s, stats, sizeof_stats);
        }
        return static_cast<int>(written.size());
    });
}
