// Picks the next token from one row of logits: inside a span among the k legal tokens, outside it
// among the vocabulary under the grammar.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "constraint/constraint.h"
#include "constraint/text_constraint.h"
#include "grammar/grammar.h"
#include "sampling/legal_tokens.h"
#include "sampling/reasoning_budget.h"
#include "sampling/sampler_chain.h"

namespace eliza {

enum class GrammarOrder {
    last,   // sample, check that token, and only if it is illegal mask the vocabulary and resample
    first,  // mask the vocabulary, then sample
};

// The natural logarithm of a normal number above 0, to the last digit but one.
double log_of_positive(double x);

// log(sum(exp(logits[0 .. n)))), shifted by the largest so that it cannot overflow; -infinity for none.
double log_sum_exp(const float * logits, size_t n);

// log(1 - exp(log_share)): the share of everything else.
double log_of_rest(double log_share);

class TokenSelector {
public:
    // `grammar` may be null.
    TokenSelector(const llama_vocab * vocab, const SamplingParams & params, std::unique_ptr<Grammar> grammar = nullptr,
                  GrammarOrder order = GrammarOrder::last);

    // Goes on with other settings, told of the tokens so far. What the settings leave as it is goes on where it was:
    // draws, what mirostat has learned, a reasoning budget. Throws Error, and nothing changes, where they do not fit
    // the vocabulary.
    void set_sampling(const SamplingParams & params, const llama_token * tokens, size_t n);

    // The names of the samplers in the order they act, with ';' between them.
    std::string describe() const;
    bool has_grammar() const { return grammar_ != nullptr; }

    // Outside spans. `drawn` is a token that was already drawn from these logits, if any; it is kept
    // where the grammar allows it.
    llama_token select(const float * logits, std::optional<llama_token> drawn = std::nullopt);

    // The logits of a decision inside a span.
    struct SpanLogits {
        const float * children;    // of the allowed tokens, in their order
        const float * vocabulary;  // of all tokens; needed only where the span may end
    };

    struct SpanChoice {
        llama_token token;  // meaningless where `ended`, but under sampling it is a fair draw
        double logprob;     // natural logarithm, of this outcome among the legal ones, from raw logits
        bool ended;         // the span ends before this token
    };

    // Inside an active span. `sampled` draws through the chain, otherwise the most likely one wins.
    SpanChoice select_in_span(SpanLogits logits, const Constraint & span, bool sampled);

    // Under a constraint by text: the winner of the whole vocabulary, if it is legal, for then no mask
    // is needed; otherwise that of the legal tokens. Samplers that look at all candidates, such as
    // top-p, see the legal ones only. Nothing where the winner is not legal and `ends_freely`: anything
    // but the value's own tokens ends it then. Throws Error where no token is legal.
    std::optional<llama_token> select_in_text(const float * logits, TextConstraint & text, bool ends_freely);

    // Under a mask: samplers that look at all candidates see the legal tokens only. From the logits of all tokens, or
    // from those of the legal ones, in their order.
    llama_token select_in_mask(const float * logits, const LegalTokens & mask);
    llama_token select_of_legal(const float * logits, TokenSpan legal);

    // So many legal ones are picked out of a row.
    static constexpr uint32_t few_tokens = 1024;

    // The natural logarithm of that outcome's probability among the legal ones, from raw logits.
    double logprob_in_text(const float * logits, TextConstraint & text, bool ends_freely,
                           std::optional<llama_token> token) const;

    // A token of the prompt counts for the chain only; the grammar describes what is generated.
    void accept_prompt(llama_token token);
    void accept(llama_token token);
    void reset();

private:
    uint32_t pick(const float * logits, TokenSpan allowed, bool sampled);
    llama_token pick_from_vocabulary(const float * logits, bool sampled);
    llama_token pick_under_grammar(const float * logits);
    template <typename Legal>
    std::optional<llama_token> pick_if_top_is_legal(const float * logits, const Legal & legal);
    llama_token pick_of_legal(const float * logits, TokenSpan legal);

    // A lazy grammar does not look into reasoning.
    bool has_lazy_grammar() const { return grammar_ != nullptr && grammar_->is_lazy(); }
    bool grammar_rests() const { return has_lazy_grammar() && budget_ && budget_->in_block(); }

    const llama_vocab * vocab_;
    int32_t n_vocab_;
    SamplerChain chain_;
    std::unique_ptr<Grammar> grammar_;
    GrammarOrder grammar_order_;
    std::optional<ReasoningBudget> budget_;
    Candidates candidates_;
};

}  // namespace eliza
