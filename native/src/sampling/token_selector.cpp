#include "sampling/token_selector.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace eliza {
namespace {

// log(sum(exp(logit))) of `n` logits, where at(i) is the i-th; shifted by the largest so that it
// cannot overflow.
template <typename At>
double log_sum_exp(size_t n, At at) {
    float largest = -INFINITY;
    for (size_t i = 0; i < n; ++i) {
        largest = std::max(largest, at(i));
    }
    double sum = 0.0;
    for (size_t i = 0; i < n; ++i) {
        sum += std::exp(static_cast<double>(at(i)) - largest);
    }
    return largest + std::log(sum);
}

}  // namespace

TokenSelector::TokenSelector(const llama_vocab * vocab, const SamplingParams & params, const std::string & gbnf,
                             GrammarOrder grammar_order)
    : n_vocab_(llama_vocab_n_tokens(vocab)), chain_(vocab, params), grammar_order_(grammar_order) {
    if (!gbnf.empty()) {
        grammar_.emplace(vocab, gbnf);
    }
}

llama_token TokenSelector::pick(const float * logits, TokenSpan allowed, bool sampled) {
    if (sampled) {
        return chain_.sample(candidates_.fill(logits, allowed.data, allowed.size));
    }
    if (!chain_.keeps_logits()) {
        return chain_.argmax(candidates_.fill(logits, allowed.data, allowed.size));
    }
    llama_token best = LLAMA_TOKEN_NULL;
    for (const Token token : allowed) {
        if (best == LLAMA_TOKEN_NULL ? logits[token] > -INFINITY : logits[token] > logits[best]) {
            best = token;
        }
    }
    if (best == LLAMA_TOKEN_NULL) {
        throw no_finite_logit();
    }
    return best;
}

llama_token TokenSelector::pick_from_vocabulary(const float * logits, bool sampled) {
    if (sampled && !chain_.greedy()) {
        return chain_.sample(candidates_.fill(logits, n_vocab_));
    }
    if (!chain_.keeps_logits()) {
        return chain_.argmax(candidates_.fill(logits, n_vocab_));
    }
    return argmax(logits, n_vocab_);
}

llama_token TokenSelector::pick_under_grammar(const float * logits) {
    llama_token_data_array & candidates = candidates_.fill(logits, n_vocab_);
    grammar_->mask(candidates);
    const bool any = std::any_of(candidates.data, candidates.data + candidates.size,
                                 [](const llama_token_data & c) { return c.logit > -INFINITY; });
    if (!any) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the grammar allows no token of the vocabulary here");
    }
    return chain_.sample(candidates);
}

llama_token TokenSelector::select(const float * logits, std::optional<llama_token> drawn) {
    if (!grammar_) {
        return drawn ? *drawn : pick_from_vocabulary(logits, true);
    }
    if (!grammar_->in_step()) {
        throw invalid_argument("the grammar cannot go on: a token of the trie is not allowed by it");
    }
    if (grammar_order_ == GrammarOrder::last) {
        const llama_token token = drawn ? *drawn : pick_from_vocabulary(logits, true);
        if (grammar_->allows(token)) {
            return token;
        }
    }
    return pick_under_grammar(logits);
}

TokenSelector::SpanChoice TokenSelector::select_in_span(const float * logits, const TokenTrieConstraint & span,
                                                        bool sampled) {
    const TokenSpan allowed = span.allowed();
    const auto of_allowed = [&](size_t i) { return logits[allowed[static_cast<uint32_t>(i)]]; };
    if (!span.may_end()) {
        const llama_token token = pick(logits, allowed, sampled);
        return {token, logits[token] - log_sum_exp(allowed.size, of_allowed), false};
    }
    // The span may end here, so every token is a candidate: a child walks on, any other ends it.
    const llama_token token = pick_from_vocabulary(logits, sampled);
    const double total = log_sum_exp(static_cast<size_t>(n_vocab_), [&](size_t i) { return logits[i]; });
    if (std::binary_search(allowed.begin(), allowed.end(), token)) {
        return {token, logits[token] - total, false};
    }
    const double on_children = std::exp(log_sum_exp(allowed.size, of_allowed) - total);
    return {token, std::log1p(-std::min(on_children, 1.0)), true};
}

void TokenSelector::accept(llama_token token) {
    chain_.accept(token);
    if (grammar_) {
        grammar_->accept(token);
    }
}

void TokenSelector::reset() {
    chain_.reset();
    if (grammar_) {
        grammar_->reset();
    }
}

}  // namespace eliza
