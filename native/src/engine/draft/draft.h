// Speculative decoding of one stream: drafted tokens are decoded together with the token that waits, and every one
// is then chosen as it would have been without the draft.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "eliza/eliza_inference.h"
#include "engine/draft/drafter.h"
#include "engine/draft/verifier_hook.h"
#include "engine/options.h"
#include "engine/pass/sequence.h"

namespace eliza {

class Draft {
public:
    // Throws Error where the drafter that is asked for cannot be had.
    Draft(const DraftConfig & config, Sequence & sequence, const Options & options,
          std::shared_ptr<VerifierHook> verifier, eliza_llm_stream_stats_t & stats);

    bool is_on() const { return drafter_ != nullptr; }

    // Decodes what waits, with a draft of `most` tokens at the most where there is one; without one nothing is
    // decoded. n_generated tokens came since the prompt. Throws Error where it is cancelled.
    void decode(int64_t most, int64_t n_generated);

    // A token was chosen where the draft, if there is one, has another or the same.
    void compare(llama_token token);

    // What is left of the draft is not what will be generated.
    void drop() { drafted_.reset(); }

private:
    void end(std::optional<llama_token> instead);

    const DraftConfig config_;
    Decoder & decoder_;
    Sequence & sequence_;
    const std::shared_ptr<VerifierHook> verifier_;
    eliza_llm_stream_stats_t & stats_;
    std::unique_ptr<Drafter> drafter_;
    struct Drafted {
        std::vector<llama_token> tokens;
        size_t n_accepted = 0;
        int64_t begin = 0;  // where the first of them stands among the tokens since the prompt
    };
    std::optional<Drafted> drafted_;  // what is being compared with what is generated
};

}  // namespace eliza
