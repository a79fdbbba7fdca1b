// The triggers of a lazy grammar. Until a trigger occurs, the grammar allows everything.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"

namespace eliza {

struct GrammarTriggers {
    std::vector<std::string> words;  // searched for in the generated text
    std::vector<llama_token> tokens;
};

// Parses a JSON array of {"type": "word" | "token", "value": ...}. Throws an Error that names the element.
GrammarTriggers parse_grammar_triggers(const std::string & json);

// Searches a growing text for the first occurrence of a word. Each byte is examined once.
class WordSearch {
public:
    explicit WordSearch(std::string word);

    // Continues the search with the next bytes. If the word has occurred, returns its position in the text.
    std::optional<size_t> feed(std::string_view bytes);
    void reset() { n_matched_ = n_read_ = 0; }

private:
    std::string word_;
    std::vector<size_t> fallback_;  // for each matched length, the length that still matches after a mismatch
    size_t n_matched_ = 0;
    size_t n_read_ = 0;
};

// Detects when the generated text contains a trigger. Not thread-safe.
class TriggerWatch {
public:
    explicit TriggerWatch(const GrammarTriggers & triggers);

    bool is_trigger(llama_token token) const;

    // Continues the search with a token's bytes. If a trigger has occurred, returns the position in the text where the
    // grammar begins. If several have, the first in the list counts.
    std::optional<size_t> feed(std::string_view bytes);
    void reset();

private:
    std::vector<WordSearch> searches_;
    std::vector<llama_token> tokens_;
};

}  // namespace eliza
