// Drafts with a head for multi-token prediction (MTP). The head is an additional layer. It reads the hidden state of a
// token and the token chosen after it, and predicts the token after these two. So it must process every pass of the
// model. An assistant is such a head with several layers that has no KV cache: its attention reads the model's cells.
#pragma once

#include <memory>
#include <vector>

#include "engine/draft/drafter.h"

namespace eliza {

class MtpDrafter : public Drafter {
public:
    // Drafts for this sequence with `head`. If `head` is nullptr, drafts with the head of the sequence's model. Throws
    // an Error if the head does not match that model.
    MtpDrafter(const DraftConfig & config, std::shared_ptr<Model> head, Sequence & sequence);

    bool looks_at_passes() const override { return true; }
    void decode_pass(const llama_token * text, size_t begin, size_t end) override;
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most) override;

private:
    // Makes the head's state consist of the first n tokens of `text`. Returns false, and changes nothing, if the head
    // has not processed these tokens, if token n - 1 was not in the last pass, or if tokens must be removed and nothing
    // was drafted since the last start_anew(). Also returns false if llama.cpp cannot remove the tokens.
    bool step_back_to(const llama_token * text, size_t n);
    void start_anew();

    bool reads_cells() const { return model_ != nullptr && model_->is_assistant(); }

    const int32_t most_;
    const uint64_t n_products_;         // estimated multiplications of the head, for each token
    const uint64_t n_output_products_;  // additional ones for predicting a token
    const PassRunner::HiddenStateReader hidden_states_;
    Decoder & decoder_;
    Slot & slot_;
    std::vector<llama_token> text_;  // tokens that the head has processed
    size_t pass_begin_ = 0;          // index in text_ where the last pass began
    bool has_drafted_ = false;       // since the last start_anew()
};

}  // namespace eliza
