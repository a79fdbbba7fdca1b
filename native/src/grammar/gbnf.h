// A GBNF grammar, as llama.cpp parses it, with its characters as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/utf8_classes.h"
#include "llama.h"

namespace eliza {

struct GrammarRules {
    enum class Kind : uint8_t {
        end,        // of an alternative
        character,  // value: the place before it
        rule,       // value: its number
        token,      // value: its id
        not_token,  // value: the id of the only one that may not stand here
    };
    struct Element {
        Kind kind;
        uint32_t value;
    };

    std::vector<Element> elements;        // alternatives one behind the other, each closed by an end
    std::vector<uint32_t> alternatives;   // where they begin in `elements`
    std::vector<uint32_t> first_of_rule;  // in `alternatives`, of each rule; and one more
    Utf8Classes characters;
    uint32_t start_rule = 0;
};

// Tokens that the grammar names are below `n_vocab`. Throws Error where the text does not parse, has no such rule, or
// asks for too much; see gbnf_limits.h.
GrammarRules parse_gbnf(const llama_vocab * vocab, size_t n_vocab, const std::string & gbnf,
                        const std::string & start_rule);

}  // namespace eliza
