// A decision: questions about one prompt, and hidden states of it, without a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/endings.h"
#include "engine/choice/state_means.h"
#include "engine/pass/sequence.h"

namespace eliza {

struct Decision {
    const llama_token * prompt = nullptr;
    size_t n_prompt = 0;
    std::vector<Ending> endings;
    WantedScores wanted{};

    // Means of hidden states of the prompt, if there are layers; see StateMeans. Without endings, the cache keeps at
    // least the first n_kept tokens, up to the first range.
    std::vector<int32_t> layers;
    std::vector<StateMeans::Range> ranges;
    size_t n_kept = 0;
    float * states_out = nullptr;
    size_t states_cap = 0;
};

// Reads the prompt into an empty sequence, and returns the scores of every ending's labels. The passes that compute
// them also compute the hidden states. Throws Error; then no states are written.
std::vector<EndingScores> decide(Sequence & sequence, const Options & options, const Decision & decision,
                                 const Progress & progress);

}  // namespace eliza
