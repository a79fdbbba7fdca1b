// Limits the number of tokens between a reasoning model's <think> and </think>, with llama.cpp's own sampler. Also
// reports whether the output is inside that block, because a lazy grammar ignores the block.
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
    // No limit if params.reasoning_budget < 0. Throws an Error if a tag has no tokens in the vocabulary.
    ReasoningBudget(const llama_vocab * vocab, const SamplingParams & params);

    // Returns true if these settings define the same budget.
    bool is_for(const SamplingParams & params) const;

    // Returns the token that must come next if the budget is used up: first the message, then the end tag.
    std::optional<llama_token> forced() const;

    bool in_block() const;

    // A block that is opened by the prompt has its whole budget left.
    void accept_prompt(llama_token token);
    void accept(llama_token token);
    void reset();

    // Returns the tag that ended the block with the last accepted token, or nothing if none did.
    std::vector<llama_token> ended_with() const;

private:
    int32_t budget_;  // this and the next three are copies of the settings
    std::string start_tag_, end_tag_, message_;
    std::vector<llama_token> start_;
    std::vector<llama_token> forced_;
    llama_sampler_ptr sampler_;
    llama_sampler_ptr prompt_;  // without a limit; tracks the block in the prompt
    bool prompt_is_open_ = false;
    bool has_just_ended_ = false;
    size_t n_forced_ = 0;
};

}  // namespace eliza
