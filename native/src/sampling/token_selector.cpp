#include "sampling/token_selector.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "error.h"

namespace eliza {

namespace {

// exp(x) for x <= 0, accurate to seven digits where the result is not negligible: a power of two times a polynomial. It
// has no calls and no branches, so that loops over it can be vectorized.
inline float exp_of_negative(float x) {
    constexpr float to_nearest = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
    const float exponent = (x > -87.0f ? x : -87.0f) * 1.44269504f;
    const float whole = (exponent + to_nearest) - to_nearest;
    const float rest = exponent - whole;
    const float power =
        1.0f +
        rest *
            (0.693147182f +
             rest * (0.240226462f +
                     rest * (0.0555041075f + rest * (0.00961813121f + rest * (0.00133335581f + rest * 0.000154035f)))));
    const auto bits = static_cast<uint32_t>(static_cast<int32_t>(whole) + 127) << 23;
    float scale = 0.0f;
    std::memcpy(&scale, &bits, sizeof scale);
    return power * scale;
}

}  // namespace

// Splits x into a power of two and a factor near 1, whose logarithm is a series. The standard library's log reads a
// table, which a forward pass has evicted from the caches; loading the table took longer than the rest of a decision.
double log_of_positive(double x) {
    constexpr uint64_t one_half_root = 0x3fe6a09e667f3bcd;  // the bits of the square root of 1/2
    constexpr double ln_2 = 0.6931471805599453;
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    const int64_t exponent = static_cast<int64_t>(bits - one_half_root) >> 52;
    bits -= static_cast<uint64_t>(exponent) << 52;
    double about_one = 0.0;
    std::memcpy(&about_one, &bits, sizeof about_one);
    const double t = (about_one - 1.0) / (about_one + 1.0);  // 2 artanh(t) = log(about_one), |t| < 0.172
    double series = 0.0;
    for (int n = 23; n >= 1; n -= 2) {
        series = series * t * t + 1.0 / n;
    }
    return static_cast<double>(exponent) * ln_2 + 2.0 * t * series;
}

double log_sum_exp(const float * logits, size_t n) {
    if (n == 0) {
        return -INFINITY;
    }
    LogitCheck check;
    std::for_each(logits, logits + n, [&](float logit) { check.look_at(logit); });
    check.finish();
    const float largest = *std::max_element(logits, logits + n);
    if (std::isinf(largest)) {
        return largest;
    }
    constexpr size_t n_lanes = 16, n_rounds = 16;
    double sum = 0.0;
    size_t i = 0;
    while (i + n_lanes <= n) {
        // Sums in single precision stay short. They are added to a double before they lose digits.
        float lanes[n_lanes] = {};
        for (size_t round = 0; round < n_rounds && i + n_lanes <= n; ++round, i += n_lanes) {
            for (size_t lane = 0; lane < n_lanes; ++lane) {
                lanes[lane] += exp_of_negative(logits[i + lane] - largest);
            }
        }
        for (const float lane : lanes) {
            sum += lane;
        }
    }
    for (; i < n; ++i) {
        sum += exp_of_negative(logits[i] - largest);
    }
    return largest + log_of_positive(sum);
}

double finite_total(double log_total) {
    if (std::isinf(log_total)) {
        throw no_finite_logit();
    }
    return log_total;
}

double log_add(double a, double b) {
    const double larger = std::max(a, b);
    return std::isinf(larger) ? larger : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

double log_of_rest(double log_share) { return std::log1p(-std::min(std::exp(log_share), 1.0)); }

TokenSelector::TokenSelector(const llama_vocab * vocab, const SamplingParams & params, std::unique_ptr<Grammar> grammar,
                             GrammarOrder order)
    : vocab_(vocab),
      n_vocab_(llama_vocab_n_tokens(vocab)),
      chain_(vocab, params),
      grammar_(std::move(grammar)),
      grammar_order_(order) {
    if (params.reasoning_budget >= 0 || has_lazy_grammar()) {
        budget_.emplace(vocab, params);
    }
}

void TokenSelector::set_sampling(const SamplingParams & params, const llama_token * tokens, size_t n) {
    SamplerChain chain(vocab_, params, &chain_);
    for (size_t i = 0; i < n; ++i) {
        chain.catch_up(tokens[i]);
    }
    const bool has_budget = params.reasoning_budget >= 0 || has_lazy_grammar();
    if (!has_budget) {
        budget_.reset();
    } else if (!budget_ || !budget_->is_for(params)) {
        ReasoningBudget budget(vocab_, params);
        for (size_t i = 0; i < n; ++i) {
            budget.accept_prompt(tokens[i]);
        }
        budget_.emplace(std::move(budget));
    }
    chain.take_from(chain_);
    chain_ = std::move(chain);
}

std::string TokenSelector::describe() const {
    const std::string chain = (budget_ ? "reasoning_budget;" : "") + chain_.describe();
    if (grammar_ == nullptr) {
        return chain;
    }
    return grammar_order_ == GrammarOrder::first ? "grammar;" + chain : chain + ";grammar";
}

// Returns the index of the winner among the allowed tokens.
uint32_t TokenSelector::pick(const float * logits, TokenSpan allowed, bool sampled) {
    if (!sampled && chain_.keeps_logits()) {
        return static_cast<uint32_t>(argmax(logits, static_cast<int32_t>(allowed.size)));
    }
    llama_token_data_array & candidates = candidates_.fill(logits, allowed.data, allowed.size);
    const llama_token token = sampled ? chain_.sample(candidates, true) : chain_.argmax(candidates);
    return static_cast<uint32_t>(std::lower_bound(allowed.begin(), allowed.end(), token) - allowed.begin());
}

llama_token TokenSelector::pick_from_vocabulary(const float * logits, bool sampled) {
    if (sampled && !chain_.greedy()) {
        const size_t n = chain_.n_candidates();
        return chain_.sample(n > 0 ? candidates_.fill_top(logits, n_vocab_, n) : candidates_.fill(logits, n_vocab_));
    }
    if (!chain_.keeps_logits()) {
        return chain_.argmax(candidates_.fill(logits, n_vocab_));
    }
    return argmax(logits, n_vocab_);
}

llama_token TokenSelector::pick_under_grammar(const float * logits) {
    const SharedMask legal = grammar_->mask();
    llama_token_data_array & candidates = candidates_.fill(logits, n_vocab_);
    for (size_t token = 0; token < candidates.size; ++token) {
        candidates.data[token].logit = legal->tokens.contains(token) ? candidates.data[token].logit : -INFINITY;
    }
    const bool any = std::any_of(candidates.data, candidates.data + candidates.size,
                                 [](const llama_token_data & c) { return c.logit > -INFINITY; });
    if (!any) {
        throw invalid_argument("the grammar allows no token of the vocabulary here");
    }
    return chain_.sample(candidates);
}

llama_token TokenSelector::select(const float * logits, std::optional<llama_token> drawn) {
    if (const auto forced = budget_ ? budget_->forced() : std::nullopt) {
        return *forced;
    }
    if (grammar_ == nullptr || grammar_rests() || !grammar_->is_awake()) {
        return drawn ? *drawn : pick_from_vocabulary(logits, true);
    }
    if (!grammar_->in_step()) {
        throw invalid_argument("the grammar cannot continue: it does not allow an earlier token");
    }
    if (grammar_order_ == GrammarOrder::last) {
        const llama_token token = drawn ? *drawn : pick_from_vocabulary(logits, true);
        if (grammar_->allows(token)) {
            return token;
        }
    }
    return pick_under_grammar(logits);
}

TokenSelector::SpanChoice TokenSelector::select_in_span(SpanLogits logits, const Constraint & span, bool sampled) {
    const TokenSpan allowed = span.allowed();
    if (!span.may_end()) {
        const uint32_t winner = pick(logits.children, allowed, sampled);
        return {allowed[winner], logits.children[winner] - log_sum_exp(logits.children, allowed.size), false};
    }
    // The span may end here, so every token is a candidate. A child continues the span; any other token ends it.
    const llama_token token = pick_from_vocabulary(logits.vocabulary, sampled);
    const double total = log_sum_exp(logits.vocabulary, static_cast<size_t>(n_vocab_));
    if (std::binary_search(allowed.begin(), allowed.end(), token)) {
        return {token, logits.vocabulary[token] - total, false};
    }
    return {token, log_of_rest(log_sum_exp(logits.children, allowed.size) - total), true};
}

std::optional<llama_token> TokenSelector::select_in_text(const float * logits, TextConstraint & text,
                                                         bool ends_freely) {
    if (!chain_.reshapes() || ends_freely) {
        const llama_token winner = pick_from_vocabulary(logits, true);
        if (text.allows(winner)) {
            return winner;
        }
        if (ends_freely) {
            return std::nullopt;
        }
    } else if (const auto winner = pick_if_top_is_legal(logits, text)) {
        return winner;
    }
    const std::vector<Token> legal = text.mask()->tokens.tokens();
    if (legal.empty()) {
        throw invalid_argument("no token of the vocabulary spells the text that must follow \"" + text.value() + "\"");
    }
    return pick_of_legal(logits, {legal.data(), static_cast<uint32_t>(legal.size())});
}

llama_token TokenSelector::select_in_mask(const float * logits, const LegalTokens & mask) {
    if (chain_.greedy()) {
        const llama_token winner = pick_from_vocabulary(logits, false);
        return mask.allows(winner) ? winner : pick_of_legal(logits, mask.tokens());
    }
    const auto winner = pick_if_top_is_legal(logits, mask);
    return winner ? *winner : pick_of_legal(logits, mask.tokens());
}

llama_token TokenSelector::select_of_legal(const float * logits, TokenSpan legal) {
    return legal[pick(logits, legal, !chain_.greedy())];
}

llama_token TokenSelector::pick_of_legal(const float * logits, TokenSpan legal) {
    llama_token_data_array & candidates = candidates_.fill_from(logits, legal.data, legal.size);
    return chain_.greedy() ? chain_.argmax(candidates) : chain_.sample(candidates, true);
}

// If top-k comes first and all of the top k tokens are allowed, they are also the top k of the allowed tokens.
template <typename Legal>
std::optional<llama_token> TokenSelector::pick_if_top_is_legal(const float * logits, const Legal & legal) {
    if (chain_.n_candidates() == 0) {
        return std::nullopt;
    }
    llama_token_data_array & top = candidates_.fill_top(logits, n_vocab_, chain_.n_candidates());
    const bool all_legal = std::all_of(top.data, top.data + top.size,
                                       [&](const llama_token_data & each) { return legal.allows(each.id); });
    return all_legal ? std::optional<llama_token>(chain_.sample(top, true)) : std::nullopt;
}

double TokenSelector::logprob_in_text(const float * logits, TextConstraint & text, bool ends_freely,
                                      std::optional<llama_token> token) const {
    std::vector<float> legal;
    for (const Token each : text.mask()->tokens.tokens()) {
        legal.push_back(logits[each]);
    }
    const double of_legal = log_sum_exp(legal.data(), legal.size());
    // If any other token ends the value, all tokens are possible.
    const double total = ends_freely ? log_sum_exp(logits, static_cast<size_t>(n_vocab_)) : of_legal;
    return token ? logits[*token] - total : log_of_rest(of_legal - total);
}

void TokenSelector::accept_prompt(llama_token token) {
    chain_.accept(token);
    if (budget_) {
        budget_->accept_prompt(token);
    }
}

void TokenSelector::accept(llama_token token) {
    const bool rests = grammar_rests();
    chain_.accept(token);
    if (budget_) {
        budget_->accept(token);
    }
    if (grammar_ == nullptr) {
        return;
    }
    if (!rests) {
        grammar_->accept(token);
    } else if (!budget_->in_block()) {
        for (const llama_token end : budget_->ended_with()) {  // the grammar may be waiting for this tag
            grammar_->accept(end);
        }
    }
}

void TokenSelector::reset() {
    chain_.reset();
    if (budget_) {
        budget_->reset();
    }
    if (grammar_ != nullptr) {
        grammar_->reset();
    }
}

}  // namespace eliza
