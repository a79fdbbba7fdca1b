// A span whose value is defined by a GBNF grammar.
#pragma once

#include <memory>
#include <string>

#include "constraint/text_constraint.h"
#include "grammar/states_grammar.h"

namespace eliza {

class GrammarConstraint final : public TextConstraint {
public:
    // The rule "root" describes the value. The fixed text around it consists of whole characters. End tokens are
    // allowed where the text is complete. Throws an Error if the grammar cannot be used.
    GrammarConstraint(const std::shared_ptr<const GrammarVocabulary> & vocabulary, const std::string & gbnf,
                      const GrammarLimits & limits, const Frame & frame);

    bool allows(Token token) const override { return grammar_->allows(token); }
    SharedMask mask() override { return grammar_->mask(); }
    void accept(Token token) override;
    bool may_end() const override { return grammar_->may_end(); }
    bool is_over() const override { return is_over_; }
    bool before_value() const override { return text_.size() < frame_.before.size(); }
    size_t n_after() const override { return n_after_; }
    std::string shortest_end() const override;

private:
    const std::shared_ptr<const GrammarVocabulary> vocabulary_;
    const Frame frame_;
    const std::unique_ptr<StatesGrammar> grammar_;
    std::string text_;
    size_t n_after_ = 0;
    bool is_over_ = false;
};

}  // namespace eliza
