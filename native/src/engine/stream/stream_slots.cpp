// Saving a stream's conversation and restoring it. Declared in engine/stream/stream.h.

#include "engine/cache/slot_file.h"
#include "engine/stream/stream.h"

namespace eliza {

std::string Stream::slot_fingerprint() const { return config_.model_fingerprint + " " + decoder_->describe_cache(); }

void Stream::save_slot(const std::string & path) {
    throw_if_cancelled();
    require_prompt();
    if (waiting_step_ && waiting_step_->token) {
        throw invalid_argument("a generated token waits to be taken before saving");
    }
    if (healing_is_pending()) {
        throw invalid_argument("choices that spell the prompt's last token anew are active: clear them before saving");
    }
    SlotFile file{slot_fingerprint(), sequence_.tokens(), {}};
    {
        Turn turn(decoder_->turns(), cancelled_);
        decode(turn, /*may_stop_before_head=*/true);
        file.state = sequence_.copy_state(turn);
        draft_.reset();  // what was decoded ahead is not there any more
    }
    write_slot_file(path, file);  // others need not wait for the disk
}

void Stream::restore_slot(const std::string & path) {
    throw_if_cancelled();
    const SlotFile file = read_slot_file(path, slot_fingerprint());
    decoder_->model().check_tokens(file.tokens.data(), file.tokens.size());
    if (file.tokens.size() > static_cast<size_t>(decoder_->n_ctx())) {
        throw ContextFull(ELIZA_ERR_FFI_FAULT, "context full: the " + std::to_string(file.tokens.size()) +
                                                   " tokens of slot file " + path + " do not fit the context of " +
                                                   std::to_string(decoder_->n_ctx()) + " (option n_ctx)");
    }
    {
        Turn turn(decoder_->turns(), cancelled_);
        sequence_.restore_state(turn, file.tokens, file.state);
    }
    begin_anew();
}

}  // namespace eliza
