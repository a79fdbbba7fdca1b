// Guesses by a head for multi-token prediction: one more layer that reads the hidden state behind a token
// and the token that was chosen there, and predicts the one after it. So it has to see every pass of the
// model.
#pragma once

#include <memory>
#include <vector>

#include "engine/draft/drafter.h"

namespace eliza {

class MtpDrafter : public Drafter {
public:
    // The head of a file of its own, or of the decoder's model if `head` is nullptr. Throws Error where it
    // does not go with that model.
    MtpDrafter(const DraftConfig & config, std::shared_ptr<Model> head, Decoder & decoder);

    bool looks_at_passes() const override { return true; }
    void decode_pass(const llama_token * text, size_t begin, size_t end) override;
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) override;

private:
    // Has the head know the first n tokens of a text and nothing else. False, and nothing is changed, where
    // it knows another text or has not seen the last of them in the last pass.
    bool step_back_to(const llama_token * text, size_t n);
    void start_anew();

    const int32_t most_;
    const uint64_t n_weights_;         // of the head, about
    const uint64_t n_output_weights_;  // that it reads besides where a token is predicted
    const PassRunner::HiddenStates hidden_states_;
    Decoder & decoder_;
    std::vector<llama_token> text_;  // that the head knows
    size_t pass_begin_ = 0;          // where in it the last pass began
    bool has_drafted_ = false;       // since the start
};

}  // namespace eliza
