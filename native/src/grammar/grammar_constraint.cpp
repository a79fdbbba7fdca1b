#include "grammar/grammar_constraint.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace eliza {
namespace {

constexpr const char * framed_rule = "eliza-framed";

std::string literal(const std::string & text) {
    if (text.find('\0') != std::string::npos) {
        throw invalid_argument("grammar: the text around the value holds U+0000, which grammars cannot spell");
    }
    std::string quoted = "\"";
    for (const char byte : text) {
        switch (byte) {
            case '"':
            case '\\':
                quoted += '\\';
                quoted += byte;
                break;
            case '\n': quoted += "\\n"; break;
            case '\r': quoted += "\\r"; break;
            case '\t': quoted += "\\t"; break;
            default: quoted += byte;
        }
    }
    return quoted + "\"";
}

std::string framed(const std::string & gbnf, const Frame & frame) {
    return gbnf + "\n" + framed_rule + " ::= " + literal(frame.before) + " root " + literal(frame.after) + "\n";
}

}  // namespace

GrammarConstraint::GrammarConstraint(const llama_vocab * vocab, std::shared_ptr<const Vocabulary> vocabulary,
                                     const std::vector<Token> & end_tokens, const std::string & gbnf,
                                     const Frame & frame)
    : vocabulary_(std::move(vocabulary)),
      end_tokens_(end_tokens),
      frame_(frame),
      grammar_(vocab, framed(gbnf, frame), std::nullopt, framed_rule) {}

SharedMask GrammarConstraint::mask() {
    std::vector<llama_token_data> data(vocabulary_->all().n_vocab());
    for (size_t i = 0; i < data.size(); ++i) {
        data[i] = {static_cast<llama_token>(i), 0.0f, 0.0f};
    }
    llama_token_data_array candidates{data.data(), data.size(), -1, false};
    grammar_.mask(candidates);
    TokenSet legal(vocabulary_->all().n_vocab());
    for (const llama_token_data & candidate : data) {
        if (candidate.logit != -INFINITY) {
            legal.add(static_cast<size_t>(candidate.id));
        }
    }
    return std::make_shared<const TokenMask>(std::move(legal));
}

void GrammarConstraint::accept(Token token) {
    grammar_.accept(token);
    text_ += vocabulary_->all().text(token);
    const size_t end = std::max(frame_.before.size(), text_.size() - n_after());
    value_ = before_value() ? "" : text_.substr(frame_.before.size(), end - frame_.before.size());
    if (may_end()) {
        const std::vector<Token> allowed = mask()->tokens.tokens();
        is_over_ = std::includes(end_tokens_.begin(), end_tokens_.end(), allowed.begin(), allowed.end());
    }
}

bool GrammarConstraint::may_end() const {
    return std::any_of(end_tokens_.begin(), end_tokens_.end(), [&](Token token) { return grammar_.allows(token); });
}

// The grammar ends behind all of the text that follows the value.
size_t GrammarConstraint::n_after() const { return may_end() ? frame_.after.size() : 0; }

std::string GrammarConstraint::shortest_end() const {
    if (may_end()) {
        return "";
    }
    throw invalid_argument("the grammar did not come to its end within max_tokens, after \"" + value_ + "\"");
}

}  // namespace eliza
