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

// llama.cpp reports a syntax error on stderr and keeps it to itself. Its parser's parts throw it.
void check_syntax(const llama_vocab * vocab, const std::string & gbnf) {
    llama_grammar_parser parser(vocab);
    try {
        for (const char * rest = skip_space_and_comments(gbnf.c_str()); *rest != '\0';) {
            rest = parser.parse_rule(rest);
        }
    } catch (const std::exception & error) {
        throw invalid_argument(std::string("gbnf_grammar: ") + error.what());
    }
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw invalid_argument("gbnf_grammar: rule \"" + name + "\" is used and not defined");
        }
    }
}

}  // namespace

Grammar::Grammar(const llama_vocab * vocab, const std::string & gbnf) {
    check_syntax(vocab, gbnf);
    const LlamaErrorCapture capture;
    sampler_.reset(llama_sampler_init_grammar(vocab, gbnf.c_str(), "root"));
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
