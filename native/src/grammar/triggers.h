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
    GrammarTriggers triggers_;
    size_t longest_ = 0;   // bytes of the longest word
    std::string tail_;     // the end of the text so far, in which a word may have begun
    size_t n_before_ = 0;  // bytes of the text before it
};

}  // namespace eliza
