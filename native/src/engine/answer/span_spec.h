// What is asked of one span of a structured answer, and what came of it.
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

    std::string before, after;  // known texts around the value
    Kind kind = Kind::literal;
    std::vector<std::string> choices;
    ValueSpec value;
    std::string grammar;
    float temperature = 0.0f;  // 0 = the most likely token at each step
    int32_t top_k = 0;
    float top_p = 1.0f;
    int32_t max_tokens = 256;  // of a value; 0 = no limit
    bool logprobs = false;     // of a value's tokens; those of choices are always known
    bool heal = false;         // the prompt's last token may be spelled anew with what follows it
};

// Throws Error that names the member.
SpanSpec parse_span(std::string_view json);

struct FillResult {
    std::string text;                  // of the value
    std::optional<double> logprob;     // natural logarithm, among the legal tokens of each step
    int32_t choice = -1;               // its place among the choices
    int64_t n_tokens = 0;              // of the value, those that share a text with it included
    bool truncated = false;            // max_tokens was reached, and the value brought to its shortest end
    bool complete = false;             // false where an error came before its end
    std::vector<llama_token> answer;   // all tokens since the prompt
    std::vector<size_t> answer_bytes;  // how many bytes each of them spells
};

std::string to_json(const FillResult & result);

}  // namespace eliza
