// Speculative decoding of one stream. One forward pass decodes the last chosen token and the drafted tokens after it.
// Every token is then chosen in the same way as without a draft.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/options.h"
#include "engine/draft/drafter.h"
#include "engine/draft/verifier_hook.h"
#include "engine/pass/sequence.h"

namespace eliza {

class Draft {
public:
    // Throws an Error if the drafter of `config` cannot be created.
    Draft(const DraftConfig & config, Sequence & sequence, const Options & options,
          std::shared_ptr<VerifierHook> verifier);

    bool is_on() const { return drafter_ != nullptr; }

    // Drafts up to `most` tokens, and decodes them together with all tokens that are not decoded yet. Does nothing
    // without a draft. `n_generated` is the number of tokens since the prompt. Throws an Error if it is cancelled.
    void decode(int64_t most, int64_t n_generated);

    // Compares a chosen token with the next token of the draft, if there is a draft.
    void compare(llama_token token);

    // Forgets the draft, without counting its tokens.
    void drop() { drafted_.reset(); }

private:
    void end(std::optional<llama_token> instead);

    const DraftConfig config_;
    Decoder & decoder_;
    Sequence & sequence_;
    const std::shared_ptr<VerifierHook> verifier_;
    StreamCounts & counts_;
    std::unique_ptr<Drafter> drafter_;
    struct Drafted {
        std::vector<llama_token> tokens;
        size_t n_accepted = 0;
        int64_t begin = 0;  // index of the first drafted token among the tokens since the prompt
    };
    std::optional<Drafted> drafted_;  // the draft that compare() uses
};

}  // namespace eliza
