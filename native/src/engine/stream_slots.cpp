// Saving a stream's conversation and restoring it. Declared in engine/stream.h.

#include "engine/slot_file.h"
#include "engine/stream.h"

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
    Turn turn(decoder_->turns(), cancelled_);
    decode(turn, /*may_stop_before_head=*/true);
    write_slot_file(path, {slot_fingerprint(), sequence_.tokens(), sequence_.copy_state(turn)});
}

void Stream::restore_slot(const std::string & path) {
    throw_if_cancelled();
    const SlotFile file = read_slot_file(path, slot_fingerprint());
    decoder_->model().check_tokens(file.tokens.data(), file.tokens.size());
    require_room(file.tokens.size());
    {
        Turn turn(decoder_->turns(), cancelled_);
        sequence_.restore_state(turn, file.tokens, file.state);
    }
    begin_anew();
}

}  // namespace eliza
