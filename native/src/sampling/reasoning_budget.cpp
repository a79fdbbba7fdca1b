#include "sampling/reasoning_budget.h"

#include <limits>
#include <new>
#include <string>

#include "error.h"
#include "reasoning-budget.h"

namespace eliza {
namespace {

std::vector<llama_token> tokens_of(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> tokens(text.size() + 2);
    const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                     static_cast<int32_t>(tokens.size()), /*add_special=*/false,
                                     /*parse_special=*/true);
    tokens.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return tokens;
}

std::vector<llama_token> tag(const llama_vocab * vocab, const char * option, const std::string & text) {
    std::vector<llama_token> tokens = tokens_of(vocab, text);
    if (tokens.empty()) {
        throw invalid_argument(std::string(option) + ": \"" + text + "\" has no tokens in this vocabulary");
    }
    return tokens;
}

bool is_inside(const llama_sampler * sampler) {
    const common_reasoning_budget_state state = common_reasoning_budget_get_state(sampler);
    return state != REASONING_BUDGET_IDLE && state != REASONING_BUDGET_DONE;
}

}  // namespace

ReasoningBudget::ReasoningBudget(const llama_vocab * vocab, const SamplingParams & params)
    : budget_(params.reasoning_budget),
      start_tag_(params.reasoning_start),
      end_tag_(params.reasoning_end),
      message_(params.reasoning_message),
      start_(tag(vocab, "reasoning_start", params.reasoning_start)) {
    const std::vector<llama_token> end = tag(vocab, "reasoning_end", params.reasoning_end);
    forced_ = tokens_of(vocab, params.reasoning_message);
    forced_.insert(forced_.end(), end.begin(), end.end());
    constexpr int32_t no_limit = std::numeric_limits<int32_t>::max();
    const int32_t budget = params.reasoning_budget < 0 ? no_limit : params.reasoning_budget;
    sampler_.reset(common_reasoning_budget_init(vocab, {start_}, {end}, forced_, budget));
    prompt_.reset(common_reasoning_budget_init(vocab, {start_}, {end}, forced_, no_limit));
    if (sampler_ == nullptr || prompt_ == nullptr) {
        throw std::bad_alloc();
    }
}

bool ReasoningBudget::is_for(const SamplingParams & params) const {
    return budget_ == params.reasoning_budget && start_tag_ == params.reasoning_start &&
           end_tag_ == params.reasoning_end && message_ == params.reasoning_message;
}

std::optional<llama_token> ReasoningBudget::forced() const {
    const bool spent = common_reasoning_budget_get_state(sampler_.get()) == REASONING_BUDGET_FORCING;
    return spent && n_forced_ < forced_.size() ? std::optional<llama_token>(forced_[n_forced_]) : std::nullopt;
}

bool ReasoningBudget::in_block() const { return is_inside(sampler_.get()); }

void ReasoningBudget::accept_prompt(llama_token token) {
    llama_sampler_accept(prompt_.get(), token);
    const bool is_open = is_inside(prompt_.get());
    if (is_open != prompt_is_open_) {
        llama_sampler_reset(sampler_.get());
        for (size_t i = 0; is_open && i < start_.size(); ++i) {
            llama_sampler_accept(sampler_.get(), start_[i]);
        }
        prompt_is_open_ = is_open;
        n_forced_ = 0;
    }
}

void ReasoningBudget::accept(llama_token token) {
    const bool was_inside = in_block();
    const std::optional<llama_token> expected = forced();
    has_just_ended_ = false;
    if (expected && token != *expected) {
        return;  // a span of labels took precedence; the forced token is still due
    }
    llama_sampler_accept(sampler_.get(), token);
    n_forced_ = expected ? n_forced_ + 1 : 0;
    has_just_ended_ = was_inside && !in_block();
    // The caller may add more prompt tokens later. Bring prompt_ into the state that follows this token.
    if (was_inside != in_block() || prompt_is_open_ != in_block()) {
        llama_sampler_reset(prompt_.get());
        prompt_is_open_ = in_block();
        for (size_t i = 0; prompt_is_open_ && i < start_.size(); ++i) {
            llama_sampler_accept(prompt_.get(), start_[i]);
        }
    }
}

void ReasoningBudget::reset() {
    llama_sampler_reset(sampler_.get());
    llama_sampler_reset(prompt_.get());
    prompt_is_open_ = has_just_ended_ = false;
    n_forced_ = 0;
}

std::vector<llama_token> ReasoningBudget::ended_with() const {
    const llama_tokens * end = common_reasoning_budget_get_end_match(sampler_.get());
    return has_just_ended_ && end != nullptr ? *end : std::vector<llama_token>();
}

}  // namespace eliza
