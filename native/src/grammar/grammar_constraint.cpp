#include "grammar/grammar_constraint.h"

#include <algorithm>

#include "error.h"

namespace eliza {
namespace {

constexpr const char * framed_rule = "eliza-framed";

std::string literal(const std::string & text) {
    if (text.find('\0') != std::string::npos) {
        throw invalid_argument("grammar: the text around the value contains U+0000, which grammars cannot spell");
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

GrammarConstraint::GrammarConstraint(const std::shared_ptr<const GrammarVocabulary> & vocabulary,
                                     const std::string & gbnf, const GrammarLimits & limits, const Frame & frame)
    : vocabulary_(vocabulary),
      frame_(frame),
      grammar_(std::make_unique<StatesGrammar>(vocabulary, framed(gbnf, frame), limits, std::nullopt,
                                               /*start_rule=*/framed_rule)) {}

// The value is over when only the text after it can follow. Then this text is fixed text, which the model need not
// spell.
void GrammarConstraint::accept(Token token) {
    grammar_->accept(token);
    text_ += vocabulary_->text(token);
    const std::optional<std::string> rest = before_value() ? std::nullopt : grammar_->only_rest(frame_.after.size());
    is_over_ = rest.has_value();
    n_after_ = rest ? frame_.after.size() - rest->size() : may_end() ? frame_.after.size() : 0;
    const size_t end = std::max(frame_.before.size(), text_.size() - n_after_);
    value_ = before_value() ? "" : text_.substr(frame_.before.size(), end - frame_.before.size());
}

std::string GrammarConstraint::shortest_end() const {
    if (may_end() || grammar_->may_end_after(frame_.after)) {
        return "";
    }
    throw invalid_argument("max_tokens ended the value before the grammar was complete, after \"" + value_ + "\"");
}

}  // namespace eliza
