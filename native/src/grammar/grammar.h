// A GBNF grammar, by llama.cpp's own sampler, guarded: told of a token it does not allow, that
// sampler throws or aborts the process, so it is asked first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "llama-cpp.h"

namespace eliza {

// What a lazy grammar waits for; until then it allows everything.
struct GrammarTriggers {
    std::vector<std::string> patterns;  // regular expressions over what was generated, from its start
    std::vector<llama_token> tokens;
};

// `json` is an array of {"type": "word" | "pattern" | "token", "value": ...}. Throws Error that names the
// place.
GrammarTriggers parse_grammar_triggers(const std::string & json);

class Grammar {
public:
    // Throws Error when the text does not parse or has no start rule.
    Grammar(const llama_vocab * vocab, const std::string & gbnf, const std::optional<GrammarTriggers> & triggers = {},
            const char * start_rule = "root");

    bool allows(llama_token token) const;

    // Sets the logits of tokens that are not allowed to -infinity.
    void mask(llama_token_data_array & candidates) const;

    // Follows the text. After a token it does not allow, the grammar is out of step for good.
    void accept(llama_token token);
    bool in_step() const { return in_step_; }

    void reset();

private:
    llama_sampler_ptr sampler_;
    bool in_step_ = true;
};

}  // namespace eliza
