// Functions of the ABI that open a stream, read a prompt, and return a result, all in one call.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abi/boundary.h"
#include "engine/choice/prepared_choices.h"

namespace eliza {

// Returns a copy of a caller's options; all fields are 0 if the caller gives none. A caller that was compiled with an
// older header has fewer fields; the others are 0.
template <typename Options>
Options read_options_struct(const Options * given) {
    Options options{};
    if (given == nullptr) {
        return options;
    }
    if (given->size < sizeof given->size || given->size > sizeof options) {
        throw invalid_argument("options.size is " + std::to_string(given->size) + ", expected at most " +
                               std::to_string(sizeof options) + ", the size of the struct");
    }
    std::memcpy(&options, given, given->size);
    return options;
}

inline eliza_llm_stream_config_t any_slot(const char * cache_key) {
    eliza_llm_stream_config_t config{};
    config.slot_id = -1;
    config.n_gpu_layers = -1;
    config.prompt_cache_key = cache_key;
    return config;
}

// Runs `body(Stream &, size_t n_prompt, labels)` on a new stream that has read the prompt of n_prompt tokens.
//
// The labels continue the prompt with the tokens that the whole text would have: in most vocabularies a space belongs
// to the word after it, so spaces at the end of the prompt move to the beginning of each label.
template <typename Body>
int after_prompt(EliInferenceContext * ctx, const char * prompt, std::shared_ptr<const PreparedChoices> labels,
                 bool plain_prompt, const eliza_llm_stream_config_t & config, char ** err, Body body) {
    require(prompt != nullptr, "prompt is NULL");
    const std::shared_ptr<Model> model = require_context(ctx)->model();
    std::string text = prompt;
    const size_t n_text = text.find_last_not_of(' ') + 1;  // 0 if there is nothing but spaces
    if (n_text > 0 && n_text < text.size()) {
        if (auto led = labels->with_lead(*model, text.substr(n_text))) {
            labels = std::move(led);
            text.resize(n_text);
        }
    }
    const std::vector<llama_token> tokens = model->tokenize(text, /*add_special=*/true, !plain_prompt);
    require(!tokens.empty(), "the prompt is empty");
    // The stream has a handle, so that destroying the context also closes this stream and ends the call.
    EliLlmStream * stream = eliza_inference_llm_stream_open(ctx, &config, err);
    if (stream == nullptr) {
        return last_status();
    }
    const int status = with_stream(stream, err, [&](Stream & s) {
        s.prefill(tokens.data(), tokens.size());
        return body(s, tokens.size(), labels);
    });
    eliza_inference_llm_stream_close(stream);
    return status;
}

}  // namespace eliza
