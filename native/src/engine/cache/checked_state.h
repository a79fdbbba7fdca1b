// Loads a sequence's state from a file into a KV cache. The whole state is checked before any of it is written.
// llama.cpp would write values as it reads them, and a NaN that stays in a freed cell harms its next owner: attention
// multiplies it by zero, which gives NaN again.
#pragma once

#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

enum class StateCheck {
    good,
    not_finite,  // the state contains a value that is not finite
    does_not_fit,
};

// Returns an upper bound for the size of one sequence's state in this context.
uint64_t most_state_bytes(llama_context * context);

// Replaces the state of a sequence. Its old contents are lost, whatever the result.
StateCheck set_checked_state(llama_context * context, llama_seq_id sequence, const std::vector<uint8_t> & state);

}  // namespace eliza
