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

namespace {

constexpr size_t max_endings = 65536;

}  // namespace

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

int eliza_inference_llm_score_endings_supported(void) { return 1; }

int eliza_inference_llm_stream_score_endings(EliLlmStream * stream, const eliza_ending_t * endings, size_t n_endings,
                                             double * legal_out, double * joint_out, double * option_mass_out,
                                             size_t cap, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(endings != nullptr && n_endings > 0, "expected one ending or more, got none");
        if (n_endings > max_endings) {
            throw invalid_argument("expected at most " + std::to_string(max_endings) + " endings, got " +
                                   std::to_string(n_endings));
        }
        std::vector<Ending> read;
        read.reserve(n_endings);
        size_t n_leaves = 0;
        for (size_t i = 0; i < n_endings; ++i) {
            read.push_back(read_ending(endings[i], at("endings", i)));
            n_leaves += read.back().trie().n_leaves();
        }
        if (n_leaves > INT32_MAX) {
            throw invalid_argument("expected at most " + std::to_string(INT32_MAX) + " leaves in all endings, got " +
                                   std::to_string(n_leaves));
        }
        if (cap == 0) {
            return static_cast<int>(n_leaves);
        }
        require_room("cap", n_leaves, "leaves", cap);
        const WantedScores wanted{legal_out != nullptr, joint_out != nullptr, option_mass_out != nullptr};
        for (const EndingScores & scores : s.score_endings(read, wanted)) {
            legal_out = wanted.legal ? std::copy(scores.legal.begin(), scores.legal.end(), legal_out) : nullptr;
            joint_out = wanted.joint ? std::copy(scores.joint.begin(), scores.joint.end(), joint_out) : nullptr;
            if (wanted.option_mass) {
                *option_mass_out++ = scores.option_mass;
            }
        }
        return static_cast<int>(n_leaves);
    });
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
