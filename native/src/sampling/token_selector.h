// Selects the next token from one row of logits: in a span among the allowed tokens, otherwise from the vocabulary,
// under the grammar if there is one.
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
    last,   // sample a token, check it, and apply the grammar to the vocabulary only if it is not allowed
    first,  // apply the grammar to the vocabulary, then sample
};

// The natural logarithm of a positive normal number, accurate to about the last digit.
double log_of_positive(double x);

// log(sum(exp(logits[0 .. n)))), shifted by the largest logit so that it cannot overflow; -infinity if all logits are,
// or if n is 0. Throws an Error if a logit is NaN or +infinity.
double log_sum_exp(const float * logits, size_t n);

// Returns a sum by which probabilities are divided. Throws an Error if it is -infinity: no logit is finite.
double finite_total(double log_total);

// log(exp(a) + exp(b))
double log_add(double a, double b);

// log(1 - exp(log_share)): the logarithm of the remaining probability.
double log_of_rest(double log_share);

class TokenSelector {
public:
    // `grammar` may be null.
    TokenSelector(const llama_vocab * vocab, const SamplingParams & params, std::unique_ptr<Grammar> grammar = nullptr,
                  GrammarOrder order = GrammarOrder::last);

    // Changes the settings. `tokens` are all tokens so far. State that the new settings do not affect is kept: random
    // generators, mirostat's estimate, a reasoning budget. If the settings do not fit the vocabulary, throws an Error
    // and changes nothing.
    void set_sampling(const SamplingParams & params, const llama_token * tokens, size_t n);

    // The names of the samplers in the order in which they act, separated by ';'.
    std::string describe() const;
    bool has_grammar() const { return grammar_ != nullptr; }

    // True if select() is an argmax over raw logits, which takes little time.
    bool is_plain_argmax() const { return uses_only_samplers() && chain_.greedy() && chain_.keeps_logits(); }

    // False if select() also checks a grammar or a limit of reasoning.
    bool uses_only_samplers() const { return grammar_ == nullptr && !budget_; }

    // Selects outside spans. `drawn` is a token already drawn from these logits, if any; it is returned if the grammar
    // allows it.
    llama_token select(const float * logits, std::optional<llama_token> drawn = std::nullopt);

    // The logits of a decision inside a span.
    struct SpanLogits {
        const float * children;    // of the allowed tokens, in their order
        const float * vocabulary;  // of all tokens; only needed if the span may end
    };

    struct SpanChoice {
        llama_token token;  // if `ended`: when sampling, the drawn token; otherwise meaningless
        // Natural logarithm of this outcome's probability among the possible outcomes, from unmodified logits.
        double logprob;
        bool ended;  // the span ends before this token
    };

    // Selects in an active span. `sampled` draws with the chain; otherwise the most probable token wins.
    SpanChoice select_in_span(SpanLogits logits, const Constraint & span, bool sampled);

    // Selects under a text constraint. If the winner of the whole vocabulary is allowed, it is returned, and no mask is
    // needed; otherwise the winner of the allowed tokens is. Samplers that depend on all candidates, such as top-p, see
    // only the allowed ones. Returns nothing if the winner is not allowed and `ends_freely` is set, because any other
    // token then ends the value. Throws an Error if no token is allowed.
    std::optional<llama_token> select_in_text(const float * logits, TextConstraint & text, bool ends_freely);

    // Selects under a mask. Samplers that depend on all candidates see only the allowed tokens. The first function
    // takes the logits of all tokens, the second only the allowed tokens' logits, in their order.
    llama_token select_in_mask(const float * logits, const LegalTokens & mask);
    llama_token select_of_legal(const float * logits, TokenSpan legal);

    // Up to this many allowed tokens, only their logits are read.
    static constexpr uint32_t few_tokens = 1024;

    // Returns the natural logarithm of the probability of a result of select_in_text() among its possible results,
    // computed from unmodified logits.
    double logprob_in_text(const float * logits, TextConstraint & text, bool ends_freely,
                           std::optional<llama_token> token) const;

    // Accepts a token of the prompt. The grammar ignores it, because it describes only generated text.
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

    // A lazy grammar ignores reasoning blocks.
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
