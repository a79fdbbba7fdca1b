#include "engine/draft/draft.h"

#include <algorithm>

namespace eliza {

Draft::Draft(const DraftConfig & config, Sequence & sequence, const Options & options,
             std::shared_ptr<VerifierHook> verifier)
    : config_(config),
      decoder_(sequence.decoder()),
      sequence_(sequence),
      verifier_(std::move(verifier)),
      counts_(sequence.counts()) {
    if (config.most < 1 || decoder_.most_ahead() < 1) {
        return;
    }
    drafter_ = Drafter::make(config, sequence, options);
    if (drafter_->looks_at_passes()) {
        sequence_.set_on_pass(
            [this](const llama_token * text, size_t begin, size_t end) { drafter_->decode_pass(text, begin, end); });
    }
}

void Draft::decode(int64_t most, int64_t n_generated) {
    const auto n_tokens = static_cast<int64_t>(sequence_.tokens().size());
    most = std::min<int64_t>({most, config_.most, decoder_.n_ctx() - n_tokens - 1, decoder_.most_ahead()});
    if (drafter_ == nullptr || most < 1) {
        return;
    }
    std::vector<llama_token> drafted;
    const auto guess = [&] { drafted = drafter_->draft(sequence_.tokens(), static_cast<int32_t>(most)); };
    if (drafter_->uses_decoder()) {
        sequence_.run_alone(guess);
    } else {
        guess();
    }
    // llama.cpp accepts draft models whose vocabulary has a few more tokens: cut the draft at the first of these.
    drafted.erase(std::find_if(drafted.begin(), drafted.end(),
                               [&](llama_token token) { return token >= decoder_.model().n_vocab(); }),
                  drafted.end());
    if (drafted.size() < std::max<size_t>(1, config_.least)) {
        return;
    }
    try {
        sequence_.decode_ahead(drafted);
    } catch (const ContextFull &) {
        return;  // without the draft, there may still be room for one token
    }
    drafted_ = Drafted{drafted, 0, n_generated};
}

void Draft::compare(llama_token token) {
    if (!drafted_) {
        return;
    }
    if (token != drafted_->tokens[drafted_->n_accepted]) {
        end(token);
    } else if (++drafted_->n_accepted == drafted_->tokens.size()) {
        end(std::nullopt);
    }
}

void Draft::end(std::optional<llama_token> instead) {
    const Drafted draft = *std::exchange(drafted_, std::nullopt);
    const size_t n_drafted = draft.tokens.size();
    counts_.tokens_drafted += static_cast<int64_t>(n_drafted);
    counts_.tokens_accepted += static_cast<int64_t>(draft.n_accepted);
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
