#include "sampling/grammar.h"

#include <cmath>
#include <cstring>
#include <exception>

#include "error.h"
#include "llama-grammar.h"
#include "log.h"

namespace eliza {
namespace {

const char * skip_space_and_comments(const char * text) {
    for (; *text != '\0' && std::strchr(" \t\r\n#", *text) != nullptr; ++text) {
        if (*text == '#') {
            text += std::strcspn(text, "\r\n");
            --text;
        }
    }
    return text;
}

// llama.cpp follows groups and rules recursively: what is nested too deep would overflow the stack.
constexpr int max_group_depth = 256;
constexpr size_t max_rules = 10000;

void check_group_depth(const std::string & gbnf) {
    int depth = 0;
    char quote = '\0';  // what ends the literal or character class we are in
    for (size_t i = 0; i < gbnf.size(); ++i) {
        const char c = gbnf[i];
        if (quote != '\0') {
            if (c == '\\') {
                ++i;
            } else if (c == quote) {
                quote = '\0';
            }
        } else if (c == '"' || c == '[') {
            quote = c == '"' ? '"' : ']';
        } else if (c == '#') {
            i += std::strcspn(gbnf.c_str() + i, "\r\n");
        } else if (c == '(') {
            if (++depth > max_group_depth) {
                throw invalid_argument("gbnf_grammar: groups are nested deeper than " +
                                       std::to_string(max_group_depth));
            }
        } else if (c == ')') {
            --depth;
        }
    }
}

// llama.cpp reports a syntax error on stderr and keeps it to itself. Its parser's parts throw it.
void check_syntax(const llama_vocab * vocab, const std::string & gbnf) {
    check_group_depth(gbnf);
    llama_grammar_parser parser(vocab);
    try {
        for (const char * rest = skip_space_and_comments(gbnf.c_str()); *rest != '\0';) {
            rest = parser.parse_rule(rest);
        }
    } catch (const std::exception & error) {
        throw invalid_argument(std::string("gbnf_grammar: ") + error.what());
    }
    if (parser.rules.size() > max_rules) {
        throw invalid_argument("gbnf_grammar: " + std::to_string(parser.rules.size()) +
                               " rules (repetitions count) are more than the limit of " + std::to_string(max_rules));
    }
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw invalid_argument("gbnf_grammar: rule \"" + name + "\" is used and not defined");
        }
    }
}

}  // namespace

Grammar::Grammar(const llama_vocab * vocab, const std::string & gbnf, const char * start_rule) {
    check_syntax(vocab, gbnf);
    const LlamaErrorCapture capture;
    sampler_.reset(llama_sampler_init_grammar(vocab, gbnf.c_str(), start_rule));
    if (sampler_ == nullptr) {
        throw invalid_argument("gbnf_grammar cannot be used" + capture.suffix());
    }
}

bool Grammar::allows(llama_token token) const {
    llama_token_data one{token, 0.0f, 0.0f};
    llama_token_data_array array{&one, 1, -1, false};
    mask(array);
    return one.logit != -INFINITY;
}

void Grammar::mask(llama_token_data_array & candidates) const { llama_sampler_apply(sampler_.get(), &candidates); }

void Grammar::accept(llama_token token) {
    if (in_step_ && allows(token)) {
        llama_sampler_accept(sampler_.get(), token);
    } else {
        in_step_ = false;
    }
}

void Grammar::reset() {
    llama_sampler_reset(sampler_.get());
    in_step_ = true;
}

}  // namespace eliza
