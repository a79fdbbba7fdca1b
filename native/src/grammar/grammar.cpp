#include "grammar/grammar.h"

#include <cmath>
#include <cstring>
#include <exception>
#include <regex>

#include "error.h"
#include "grammar/gbnf_limits.h"
#include "json_input.h"
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
    check_gbnf_text(gbnf);
    llama_grammar_parser parser(vocab);
    try {
        for (const char * rest = skip_space_and_comments(gbnf.c_str()); *rest != '\0';) {
            rest = parser.parse_rule(rest);
        }
    } catch (const std::exception & error) {
        throw invalid_argument(std::string("gbnf_grammar: ") + error.what());
    }
    check_gbnf_rules(parser);
}

std::string literal_pattern(const std::string & text) {
    std::string pattern = "[\\s\\S]*?(";
    for (const char c : text) {
        if (std::strchr("^$\\.*+?()[]{}|", c) != nullptr) {
            pattern += '\\';
        }
        pattern += c;
    }
    return pattern + "[\\s\\S]*)";
}

}  // namespace

GrammarTriggers parse_grammar_triggers(const std::string & text) {
    const Json json = parse_json(text, "grammar_triggers");
    if (!json.is_array() || json.empty()) {
        throw invalid_argument("grammar_triggers: expected an array of triggers, found " +
                               (json.is_array() ? "none" : kind_of(json)));
    }
    GrammarTriggers triggers;
    for (size_t i = 0; i < json.size(); ++i) {
        const std::string place = at("grammar_triggers", i);
        const auto type = member(json[i], "type", &Json::is_string, "a string", place).get<std::string>();
        if (type == "token") {
            int64_t token = 0;
            if (!read_int(member(json[i], "value", &Json::is_number_integer, "a token id", place), 0, INT32_MAX,
                          token)) {
                throw invalid_argument(place + ".value: a token id is 0 to " + std::to_string(INT32_MAX));
            }
            triggers.tokens.push_back(static_cast<llama_token>(token));
            continue;
        }
        const auto value = member(json[i], "value", &Json::is_string, "a string", place).get<std::string>();
        if (type != "word" && type != "pattern") {
            throw invalid_argument(place + ".type: \"" + type + "\" is not word, pattern or token");
        }
        triggers.patterns.push_back(type == "word" ? literal_pattern(value) : value);
    }
    return triggers;
}

Grammar::Grammar(const llama_vocab * vocab, const std::string & gbnf, const std::optional<GrammarTriggers> & triggers,
                 const char * start_rule) {
    check_syntax(vocab, gbnf);
    const LlamaErrorCapture capture;
    if (triggers) {
        std::vector<const char *> patterns;
        for (const std::string & pattern : triggers->patterns) {
            patterns.push_back(pattern.c_str());
        }
        for (const llama_token token : triggers->tokens) {
            if (token < 0 || token >= llama_vocab_n_tokens(vocab)) {
                throw invalid_argument("grammar_triggers: token " + std::to_string(token) +
                                       " is outside the vocabulary of " + std::to_string(llama_vocab_n_tokens(vocab)));
            }
        }
        try {
            for (const char * pattern : patterns) {
                const std::regex compiled(pattern);  // what llama.cpp does, but it loses memory where this throws
            }
        } catch (const std::regex_error & error) {
            throw invalid_argument(std::string("grammar_triggers: ") + error.what());
        }
        sampler_.reset(llama_sampler_init_grammar_lazy_patterns(vocab, gbnf.c_str(), start_rule, patterns.data(),
                                                                patterns.size(), triggers->tokens.data(),
                                                                triggers->tokens.size()));
    } else {
        sampler_.reset(llama_sampler_init_grammar(vocab, gbnf.c_str(), start_rule));
    }
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
    in_step_ = in_step_ && allows(token);
    if (!in_step_) {
        return;
    }
    try {
        llama_sampler_accept(sampler_.get(), token);
    } catch (const std::exception &) {
        in_step_ = false;  // a lazy grammar reads what came since its trigger only now
    }
}

void Grammar::reset() {
    llama_sampler_reset(sampler_.get());
    in_step_ = true;
}

}  // namespace eliza
