// Checks that a file's head counts, head sizes and rotary positions are consistent.
#pragma once

#include "engine/model/gguf_header.h"

namespace eliza {

// Throws an Error for values that would end the process when a graph is computed.
void check_attention(const GgufArch & arch, uint32_t n_layers);

}  // namespace eliza
