// A GBNF grammar, by llama.cpp's own sampler: what ours is compared with.
#pragma once

#include <memory>
#include <string>

#include "grammar/grammar.h"
#include "grammar/grammar_vocabulary.h"
#include "llama-cpp.h"

namespace eliza {

// It knows no limits: an ambiguous grammar may take it minutes for a token.
class LlamaGrammar final : public Grammar {
public:
    // Throws Error when the text does not parse or has no start rule.
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
