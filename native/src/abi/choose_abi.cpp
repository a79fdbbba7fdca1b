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

InferenceContext::OpenRequest open_request(const eliza_choose_options_t & options) {
    InferenceContext::OpenRequest request;
    request.stream.slot.cache_key = options.cache_key != nullptr ? options.cache_key : "";
    if (options.mode == ELIZA_TRIE_SAMPLE) {
        request.stream.sampling.temperature = options.temperature == 0.0f ? 1.0f : options.temperature;
    }
    return request;
}

struct Chosen {
    eliza_choice_t choice{};
    std::vector<llama_token> tokens;
    std::vector<double> logprobs;  // of all labels, if wanted
};

// Chooses a label after the prompt of n_prompt tokens that the stream has read since `before`.
Chosen choose(Stream & stream, const eliza_llm_stream_stats_t & before, size_t n_prompt, const PreparedChoices & labels,
              int mode, bool wants_logprobs) {
    Chosen chosen;
    stream.set_choices(labels, mode | ELIZA_TRIE_STOP_AT_LEAF);
    if (wants_logprobs) {
        chosen.logprobs = stream.leaf_scores();
    }
    stream.generate(0, [&](const Stream::Step & step) {
        if (step.token) {
            chosen.tokens.push_back(*step.token);
        }
        return true;
    });
    const auto & leaf = stream.leaf();
    if (!leaf.has_value()) {
        throw Error(ELIZA_ERR_CONTEXT_FULL, "context full: no room for the rest of the label (option n_ctx)");
    }
    const eliza_llm_stream_stats_t stats = stream.stats();
    chosen.choice.label = leaf->index;
    chosen.choice.forward_passes = static_cast<int32_t>(stats.forward_passes - stats.prompt_passes -
                                                        (before.forward_passes - before.prompt_passes));
    chosen.choice.prompt_tokens = static_cast<int32_t>(n_prompt);
    chosen.choice.prompt_tokens_cached = static_cast<int32_t>(stats.prompt_tokens_reused - before.prompt_tokens_reused);
    chosen.choice.logprob = leaf->logprob;
    return chosen;
}

int write(const Chosen & chosen, eliza_choice_t * result, double * probabilities_out) {
    *result = chosen.choice;
    std::transform(chosen.logprobs.begin(), chosen.logprobs.end(), probabilities_out,
                   [](double logprob) { return std::exp(logprob); });
    return ELIZA_OK;
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
        const std::vector<std::string> texts = read_labels(labels, n_labels);
        SplitPrompt split = split_prompt(prompt);
        auto prepared = split.spaces.empty() ? nullptr : PreparedChoices::led(*context.model(), texts, split.spaces);
        if (prepared == nullptr) {
            split.text += split.spaces;
            prepared = context.prepare_choices(texts);
        }
        return after_prompt(
            ctx, split.text, read.plain_prompt != 0, open_request(read), err, [&](Stream & stream, size_t n_prompt) {
                return write(choose(stream, {}, n_prompt, *prepared, read.mode, probabilities_out != nullptr), result,
                             probabilities_out);
            });
    });
}

int32_t eliza_inference_choose_prepared(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                                        const eliza_choose_options_t * options, eliza_choice_t * result,
                                        double * probabilities_out, char ** err) {
    return guarded(err, [&] {
        require(result != nullptr, "result is NULL");
        const eliza_choose_options_t read = read_options(options);
        return after_prompt(ctx, prompt, require_choices(labels), read.plain_prompt != 0, open_request(read), err,
                            [&](Stream & stream, size_t n_prompt, const auto & prepared) {
                                return write(
                                    choose(stream, {}, n_prompt, *prepared, read.mode, probabilities_out != nullptr),
                                    result, probabilities_out);
                            });
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
        if (s.max_tokens() > 0 && labels->longest() > static_cast<size_t>(s.max_tokens())) {
            throw invalid_argument("max_tokens of the stream: expected at least " + std::to_string(labels->longest()) +
                                   ", the tokens of " + at("labels", labels->longest_choice()) + ", got " +
                                   std::to_string(s.max_tokens()));
        }
        const eliza_llm_stream_stats_t before = s.stats();
        s.append(tokens, n);
        const Chosen chosen = choose(s, before, n, *labels, mode, logprobs_out != nullptr);
        *result = chosen.choice;
        std::copy(chosen.tokens.begin(), chosen.tokens.end(), tokens_out);
        std::copy(chosen.logprobs.begin(), chosen.logprobs.end(), logprobs_out);
        if (stats != nullptr) {
            write_stats(s, stats, sizeof_stats);
        }
        return static_cast<int>(chosen.tokens.size());
    });
}
