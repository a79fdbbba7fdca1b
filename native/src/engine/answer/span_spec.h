// The specification of one span of a structured answer, and the result of filling it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/text_constraints.h"
#include "llama.h"

namespace eliza {

struct SpanSpec {
    enum class Kind { literal, choices, value, grammar };

    std::string before, after;  // fixed text around the value
    Kind kind = Kind::literal;
    std::vector<std::string> choices;
    ValueSpec value;
    std::string grammar;
    float temperature = 0.0f;  // 0 = the most probable token at each step
    int32_t top_k = 0;
    float top_p = 1.0f;
    int32_t max_tokens = 256;  // of a value; 0 = no limit
    bool logprobs = false;     // compute log-probabilities of values too, not only of labels
    bool heal = false;         // the prompt's last token may be tokenized again, together with the following text
    bool best = false;         // the most probable label, instead of the most probable token at each step
    int32_t take_back = -1;    // bytes of the last token to remove first; -1 = none, and fixed text may still change
};

// Parses a span. Throws an Error that names the wrong member.
SpanSpec parse_span(std::string_view json);

struct FillResult {
    std::string text;                  // of the value
    std::optional<double> logprob;     // natural log-probability of the value, among the allowed tokens of each step
    int32_t choice = -1;               // index of the chosen label, or -1
    int64_t n_tokens = 0;              // number of tokens that contain text of the value
    bool truncated = false;            // max_tokens was reached, and the value was ended in the shortest way
    bool complete = false;             // false if an error interrupted the span
    std::vector<llama_token> answer;   // all tokens since the prompt
    std::vector<size_t> answer_bytes;  // the number of bytes of each of these tokens
};

std::string to_json(const FillResult & result);

}  // namespace eliza
