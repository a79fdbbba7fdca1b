// Functions for spans of labels.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "abi/boundary.h"
#include "abi/choices_handles.h"
#include "json_input.h"

using namespace eliza;

int eliza_inference_token_trie_supported(void) {
    return (1 << ELIZA_TRIE_ARGMAX) | (1 << ELIZA_TRIE_SAMPLE) | (1 << ELIZA_TRIE_BEST_LEAF) | ELIZA_TRIE_STOP_AT_LEAF;
}

int eliza_inference_set_token_trie(EliLlmStream * stream, const char * payload, size_t len, int mode) {
    return with_stream(stream, nullptr,
                       [&](Stream & s) { s.set_token_trie(require_text(payload, len, "payload"), mode); });
}

EliChoices * eliza_inference_prepare_choices(EliInferenceContext * ctx, const char * json_array_of_strings, size_t len,
                                             size_t * longest_out, char ** err) {
    EliChoices * handle = nullptr;
    with_context(ctx, err, [&](InferenceContext & context) {
        const auto texts = parse_strings(require_text(json_array_of_strings, len, "json_array_of_strings"), "choices");
        const auto prepared = context.prepare_choices(texts);
        write_if_asked(longest_out, prepared->longest());
        handle = choices_handles.add(prepared);
    });
    return handle;
}

EliChoices * eliza_inference_prepare_token_trie(EliInferenceContext * ctx, const char * payload, size_t len,
                                                size_t * longest_out, char ** err) {
    EliChoices * handle = nullptr;
    with_context(ctx, err, [&](InferenceContext & context) {
        const auto prepared = context.prepare_payload(require_text(payload, len, "payload"));
        write_if_asked(longest_out, prepared->longest());
        handle = choices_handles.add(prepared);
    });
    return handle;
}

void eliza_inference_free_choices(EliChoices * choices) { choices_handles.remove(choices); }

int eliza_inference_set_choices(EliLlmStream * stream, EliChoices * choices, int mode) {
    return with_stream(stream, nullptr, [&](Stream & s) { s.set_choices(*require_choices(choices), mode); });
}

int eliza_inference_set_text_choices(EliLlmStream * stream, const char * json_array_of_strings, size_t len, int mode) {
    return with_stream(stream, nullptr, [&](Stream & s) {
        s.set_text_choices(require_text(json_array_of_strings, len, "json_array_of_strings"), mode);
    });
}

void eliza_inference_clear_token_trie(EliLlmStream * stream) {
    with_stream(stream, nullptr, [](Stream & s) { s.clear_token_trie(); });
}

int eliza_inference_token_trie_leaf(EliLlmStream * stream, char * name_out, size_t cap, double * logprob_out) {
    return with_stream(stream, nullptr, [&](Stream & s) {
        const auto & leaf = s.leaf();
        require(leaf.has_value(), "no span has ended on a leaf");
        if (name_out != nullptr) {
            if (leaf->name.size() >= cap) {
                throw invalid_argument("cap: expected room for the leaf's name, " +
                                       std::to_string(leaf->name.size() + 1) + " bytes, got " + std::to_string(cap));
            }
            std::memcpy(name_out, leaf->name.c_str(), leaf->name.size() + 1);
        }
        if (logprob_out != nullptr) {
            *logprob_out = leaf->logprob;
        }
    });
}

int eliza_inference_token_trie_scores(EliLlmStream * stream, double * logprobs_out, size_t cap) {
    return with_stream(stream, nullptr, [&](Stream & s) {
        const size_t n = s.n_leaves();
        if (cap > 0) {
            require(logprobs_out != nullptr, "logprobs_out is NULL");
            require_room("cap", n, "leaves", cap);
            const std::vector<double> & scores = s.leaf_scores();
            std::copy(scores.begin(), scores.end(), logprobs_out);
        }
        return static_cast<int>(n);
    });
}
