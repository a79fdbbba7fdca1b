// Puts the state of a sequence into a cache, where that comes from a file: nothing of it is in the cache before all of
// it was looked at. llama.cpp writes what it reads, and a value that is no number stays in a cell for whoever gets that
// next: attention takes it times zero, which is no number either.
#pragma once

#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

enum class StateCheck {
    good,
    not_finite,  // the state holds what is no number
    does_not_fit,
};

// No state of one sequence of this context is larger.
uint64_t most_state_bytes(llama_context * context);

// What was in the sequence is gone, whatever becomes of it.
StateCheck set_checked_state(llama_context * context, llama_seq_id sequence, const std::vector<uint8_t> & state);

}  // namespace eliza
