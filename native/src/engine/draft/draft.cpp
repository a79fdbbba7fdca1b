// Speculative decoding: drafted tokens are decoded together with the token that waits, and every one is
// then chosen as it would have been without the draft. Declared in engine/stream/stream.h.

#include <algorithm>

#include "engine/stream/stream.h"

namespace eliza {

// Decodes what waits, with a draft of what follows where there is one.
void Stream::decode_with_draft(Turn & turn) {
    const auto n_tokens = static_cast<int64_t>(sequence_.tokens().size());
    int64_t most = std::min<int64_t>(config_.draft.most, decoder_->n_ctx() - n_tokens - 1);
    most = std::min<int64_t>(most, decoder_->most_ahead());
    if (config_.max_tokens > 0) {
        most = std::min<int64_t>(most, config_.max_tokens - generated_since_prefill_ - 1);
    }
    if (most < 1) {
        return;
    }
    std::vector<llama_token> drafted = drafter_->draft(sequence_.tokens(), static_cast<int32_t>(most));
    // llama.cpp lets a drafter know some tokens more.
    drafted.erase(std::find_if(drafted.begin(), drafted.end(),
                               [&](llama_token token) { return token >= decoder_->model().n_vocab(); }),
                  drafted.end());
    if (drafted.size() < std::max<size_t>(1, config_.draft.least)) {
        return;
    }
    try {
        sequence_.decode_ahead(turn, cost_, drafted);
    } catch (const Error & error) {
        if (error.status() == ELIZA_ERR_CANCELLED) {
            throw;
        }
        return;  // it may still work without the draft: there may be room for one token
    }
    draft_ = Draft{drafted, 0, generated_since_prefill_};
}

// A token was chosen where the draft has one.
void Stream::compare_with_draft(llama_token token) {
    if (!draft_) {
        return;
    }
    if (token != draft_->tokens[draft_->n_accepted]) {
        end_draft(token);
    } else if (++draft_->n_accepted == draft_->tokens.size()) {
        end_draft(std::nullopt);
    }
}

void Stream::end_draft(std::optional<llama_token> instead) {
    const Draft draft = *std::exchange(draft_, std::nullopt);
    const size_t n_drafted = draft.tokens.size();
    stats_.tokens_drafted += static_cast<int64_t>(n_drafted);
    stats_.tokens_accepted += static_cast<int64_t>(draft.n_accepted);
    EliVerifierEvent event{};
    event.accepted_token_ids = draft.tokens.data();
    event.n_accepted = draft.n_accepted;
    event.rejected_from = event.rejected_to = -1;
    if (instead) {
        event.rejected_from = static_cast<int>(draft.begin + static_cast<int64_t>(draft.n_accepted));
        event.rejected_to = static_cast<int>(draft.begin + static_cast<int64_t>(n_drafted) - 1);
        event.corrected_token_ids = &*instead;
        event.n_corrected = 1;
    }
    verifier_->call(event);
}

}  // namespace eliza
