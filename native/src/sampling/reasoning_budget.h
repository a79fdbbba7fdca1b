// At most so many tokens between a reasoning model's <think> and </think>, with llama.cpp's own sampler;
// and where that block is, for a lazy grammar, which does not look into it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llama-cpp.h"
#include "sampling/sampling_params.h"

namespace eliza {

class ReasoningBudget {
public:
    // Without a limit if params.reasoning_budget < 0. Throws Error where a tag has no tokens.
    ReasoningBudget(const llama_vocab * vocab, const SamplingParams & params);

    // True where other settings of a budget would not change it.
    bool is_for(const SamplingParams & params) const;

    // What comes next if the budget is spent: the message's tokens, then those that end the block.
    std::optional<llama_token> forced() const;

    bool in_block() const;

    // A block that the prompt has opened has its whole budget to come.
    void accept_prompt(llama_token token);
    void accept(llama_token token);
    void reset();

    // The tag that ended the block with the token accepted last; empty if none did.
    std::vector<llama_token> ended_with() const;

private:
    int32_t budget_;  // as in the settings, as are the next three
    std::string start_tag_, end_tag_, message_;
    std::vector<llama_token> start_;
    std::vector<llama_token> forced_;
    llama_sampler_ptr sampler_;
    llama_sampler_ptr prompt_;  // without a limit, told of the prompt alone
    bool prompt_is_open_ = false;
    bool has_just_ended_ = false;
    size_t n_forced_ = 0;
};

}  // namespace eliza
