// Checks that a file's head counts, head sizes and rotary positions are consistent.
#pragma once

#include <string>

#include "engine/model/gguf_header.h"

namespace eliza {

// Throws an Error for values that would end the process when a graph is computed. `arch` is the prefix of the keys.
void check_attention(const GgufHeader & file, const std::string & arch, uint32_t n_layers);

}  // namespace eliza
