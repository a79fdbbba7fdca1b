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

eliza_choose_options_t read_options(const eliza_choose_options_t * given) {
    const eliza_choose_options_t options = read_options_struct(given);
    const bool is_mode =
        options.mode == ELIZA_TRIE_ARGMAX || options.mode == ELIZA_TRIE_SAMPLE || options.mode == ELIZA_TRIE_BEST_LEAF;
    if (!is_mode) {
        throw invalid_argument("options.mode is " + std::to_string(options.mode) + ", expected an eliza_trie_mode");
    }
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

eliza_choice_t choose(Stream & stream, size_t n_prompt, const PreparedChoices & labels, int mode,
                      double * probabilities_out) {
    stream.set_choices(labels, mode | ELIZA_TRIE_STOP_AT_LEAF);
    std::vector<double> logprobs;
    if (probabilities_out != nullptr) {
        logprobs = stream.leaf_scores();
    }
    stream.generate(0, [](const Stream::Step &) { return true; });
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
    std::transform(logprobs.begin(), logprobs.end(), probabilities_out,
                   [](double logprob) { return std::exp(logprob); });
    return result;
}

int choose_one(EliInferenceContext * ctx, const char * prompt, std::shared_ptr<const PreparedChoices> given,
               const eliza_choose_options_t & options, eliza_choice_t * result, double * probabilities_out,
               char ** err) {
    return after_prompt(ctx, prompt, std::move(given), options.plain_prompt != 0, stream_config(options), err,
                        [&](Stream & stream, size_t n_prompt, const std::shared_ptr<const PreparedChoices> & labels) {
                            *result = choose(stream, n_prompt, *labels, options.mode, probabilities_out);
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
