#include "grammar/gbnf.h"

#include <cstring>
#include <exception>

#include "error.h"
#include "grammar/gbnf_limits.h"
#include "llama-grammar.h"

namespace eliza {
namespace {

using Kind = GrammarRules::Kind;

const char * skip_space_and_comments(const char * text) {
    for (; *text != '\0' && std::strchr(" \t\r\n#", *text) != nullptr; ++text) {
        if (*text == '#') {
            text += std::strcspn(text, "\r\n");
            --text;
        }
    }
    return text;
}

// llama_grammar_parser::parse() prints syntax errors to stderr and does not return them. parse_rule() throws them, so
// this function calls parse_rule() itself.
llama_grammar_parser parsed(const llama_vocab * vocab, const std::string & gbnf) {
    check_gbnf_text(gbnf);
    llama_grammar_parser parser(vocab);
    try {
        for (const char * rest = skip_space_and_comments(gbnf.c_str()); *rest != '\0';) {
            rest = parser.parse_rule(rest);
        }
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & error) {
        constexpr size_t most_quoted = 200;  // the message quotes the whole rest of the grammar
        throw invalid_argument("gbnf_grammar: " + std::string(error.what()).substr(0, most_quoted));
    }
    check_gbnf_rules(parser);
    return parser;
}

// Adds the character class that begins at element `i`. The elements after it may hold further characters and ranges of
// the same class. Moves `i` to the last of them.
Utf8Classes::Place add_character(const llama_grammar_rule & rule, size_t & i, Utf8Classes & characters) {
    if (rule[i].type == LLAMA_GRETYPE_CHAR_ANY) {
        return characters.add({}, /*inverted=*/true);
    }
    const bool inverted = rule[i].type == LLAMA_GRETYPE_CHAR_NOT;
    std::vector<CodePoints> ranges = {{rule[i].value, rule[i].value}};
    for (; rule[i + 1].type == LLAMA_GRETYPE_CHAR_ALT || rule[i + 1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER; ++i) {
        if (rule[i + 1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
            ranges.back().last = rule[i + 1].value;
        } else {
            ranges.push_back({rule[i + 1].value, rule[i + 1].value});
        }
    }
    return characters.add(std::move(ranges), inverted);
}

uint32_t checked_token(const llama_grammar_element & element, size_t n_vocab) {
    if (element.value >= n_vocab) {
        throw invalid_argument("gbnf_grammar: token " + std::to_string(element.value) +
                               " is outside the vocabulary of " + std::to_string(n_vocab));
    }
    return element.value;
}

void add_rule(size_t n_vocab, const llama_grammar_rule & rule, GrammarRules & rules) {
    rules.first_of_rule.push_back(static_cast<uint32_t>(rules.alternatives.size()));
    bool begins = true;
    for (size_t i = 0; i < rule.size(); ++i) {
        if (begins) {
            rules.alternatives.push_back(static_cast<uint32_t>(rules.elements.size()));
            begins = false;
        }
        switch (rule[i].type) {
            case LLAMA_GRETYPE_END:
            case LLAMA_GRETYPE_ALT:
                rules.elements.push_back({Kind::end, 0});
                begins = true;
                break;
            case LLAMA_GRETYPE_RULE_REF: rules.elements.push_back({Kind::rule, rule[i].value}); break;
            case LLAMA_GRETYPE_TOKEN: rules.elements.push_back({Kind::token, checked_token(rule[i], n_vocab)}); break;
            case LLAMA_GRETYPE_TOKEN_NOT:
                rules.elements.push_back({Kind::not_token, checked_token(rule[i], n_vocab)});
                break;
            default: rules.elements.push_back({Kind::character, add_character(rule, i, rules.characters)});
        }
    }
}

}  // namespace

GrammarRules parse_gbnf(const llama_vocab * vocab, size_t n_vocab, const std::string & gbnf,
                        const std::string & start_rule) {
    const llama_grammar_parser parser = parsed(vocab, gbnf);
    const auto start = parser.symbol_ids.find(start_rule);
    if (start == parser.symbol_ids.end()) {
        throw invalid_argument("gbnf_grammar has no rule \"" + start_rule + "\"");
    }
    GrammarRules rules;
    rules.start_rule = start->second;
    for (const llama_grammar_rule & rule : parser.rules) {
        add_rule(n_vocab, rule, rules);
    }
    rules.first_of_rule.push_back(static_cast<uint32_t>(rules.alternatives.size()));
    return rules;
}

}  // namespace eliza
