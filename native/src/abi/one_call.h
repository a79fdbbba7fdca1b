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
        throw invalid_argument("options.size: expected " + std::to_string(sizeof given->size) + " to " +
                               std::to_string(sizeof options) + ", the size of the struct, got " +
                               std::to_string(given->size));
    }
    std::memcpy(&options, given, given->size);
    return options;
}

// A prompt without the spaces at its end, and these spaces. In most vocabularies a space belongs to the word after it,
// so the spaces become the beginning of each label: the tokens are then those of the whole text.
struct SplitPrompt {
    std::string text, spaces;
};

inline SplitPrompt split_prompt(const char * prompt) {
    require(prompt != nullptr, "prompt is NULL");
    const std::string text = prompt;
    const size_t n_text = text.find_last_not_of(' ') + 1;  // 0 if there is nothing but spaces
    return n_text == 0 ? SplitPrompt{text, ""} : SplitPrompt{text.substr(0, n_text), text.substr(n_text)};
}

// Runs `body(Stream &, size_t n_prompt)` on a new stream that has read the prompt of n_prompt tokens.
template <typename Body>
int after_prompt(EliInferenceContext * ctx, const std::string & prompt, bool plain_prompt,
                 InferenceContext::OpenRequest request, char ** err, Body body) {
    const std::vector<llama_token> tokens =
        require_context(ctx)->model()->tokenize(prompt, /*add_special=*/true, !plain_prompt);
    require(!tokens.empty(), "the prompt is empty");
    request.takes_any_types = true;
    // The stream has a handle, so that destroying the context also closes this stream and ends the call.
    EliLlmStream * stream = open_stream(ctx, std::move(request));
    const int status = with_stream(stream, err, [&](Stream & s) {
        s.append(tokens.data(), tokens.size());
        return body(s, tokens.size());
    });
    eliza_inference_llm_stream_close(stream);
    return status;
}

// The same with prepared labels: `body(Stream &, size_t n_prompt, labels)`.
template <typename Body>
int after_prompt(EliInferenceContext * ctx, const char * prompt, std::shared_ptr<const PreparedChoices> labels,
                 bool plain_prompt, InferenceContext::OpenRequest request, char ** err, Body body) {
    SplitPrompt split = split_prompt(prompt);
    if (!split.spaces.empty()) {
        if (auto led = labels->with_lead(*require_context(ctx)->model(), split.spaces)) {
            labels = std::move(led);
        } else {
            split.text += split.spaces;
        }
    }
    return after_prompt(ctx, split.text, plain_prompt, std::move(request), err,
                        [&](Stream & stream, size_t n_prompt) { return body(stream, n_prompt, labels); });
}

}  // namespace eliza
