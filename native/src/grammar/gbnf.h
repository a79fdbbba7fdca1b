// A GBNF grammar as parsed by llama.cpp, with its characters converted to bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/utf8_classes.h"
#include "llama.h"

namespace eliza {

struct GrammarRules {
    enum class Kind : uint8_t {
        end,        // end of an alternative
        character,  // value: the place before the character
        rule,       // value: the number of the rule
        token,      // value: the id of the token
        not_token,  // value: the id of the only token that is not allowed here
    };
    struct Element {
        Kind kind;
        uint32_t value;
    };

    std::vector<Element> elements;        // all alternatives one after another, each terminated by `end`
    std::vector<uint32_t> alternatives;   // the index in `elements` at which each alternative begins
    std::vector<uint32_t> first_of_rule;  // the index in `alternatives` at which each rule begins, and the end
    Utf8Classes characters;
    uint32_t start_rule = 0;
};

// Parses a grammar. Throws an Error if the text cannot be parsed, does not define start_rule, names a token that is not
// below `n_vocab`, or exceeds a limit; see gbnf_limits.h.
GrammarRules parse_gbnf(const llama_vocab * vocab, size_t n_vocab, const std::string & gbnf,
                        const std::string & start_rule);

}  // namespace eliza
