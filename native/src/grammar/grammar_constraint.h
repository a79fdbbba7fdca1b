// A span whose value is told by a GBNF grammar, with llama.cpp's own sampler.
#pragma once

#include <functional>
#include <string>

#include "constraint/text_constraint.h"
#include "grammar/grammar.h"

namespace eliza {

class GrammarConstraint final : public TextConstraint {
public:
    // The value is what the rule "root" describes, the texts around it are whole characters. `end_tokens`
    // are legal where the text is complete. Throws Error when the grammar cannot be used.
    GrammarConstraint(const llama_vocab * vocab, std::shared_ptr<const Vocabulary> vocabulary,
                      const std::vector<Token> & end_tokens, const std::string & gbnf, const Frame & frame);

    bool allows(Token token) const override { return grammar_.allows(token); }
    SharedMask mask() override;
    void accept(Token token) override;
    bool may_end() const override;
    bool is_over() const override { return is_over_; }
    bool before_value() const override { return text_.size() < frame_.before.size(); }
    size_t n_after() const override;
    std::string shortest_end() const override;

private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    const std::vector<Token> & end_tokens_;
    Frame frame_;
    Grammar grammar_;
    std::string text_;
    bool is_over_ = false;
};

}  // namespace eliza
