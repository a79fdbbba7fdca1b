// A GBNF grammar, with llama.cpp's own sampler: the reference implementation.
#pragma once

#include <memory>
#include <string>

#include "grammar/grammar.h"
#include "grammar/grammar_vocabulary.h"
#include "llama-cpp.h"

namespace eliza {

// It has no limits. An ambiguous grammar may take minutes for one token.
class LlamaGrammar final : public Grammar {
public:
    // Throws an Error if the text cannot be parsed or has no start rule.
    LlamaGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string & gbnf);

    bool is_lazy() const override { return false; }
    bool is_awake() override { return true; }
    bool allows(llama_token token) override;
    SharedMask mask() override;
    void accept(llama_token token) override;
    bool in_step() override { return in_step_; }
    void reset() override;

private:
    const std::shared_ptr<const GrammarVocabulary> vocabulary_;
    llama_sampler_ptr sampler_;
    bool in_step_ = true;
};

}  // namespace eliza
