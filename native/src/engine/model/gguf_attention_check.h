// Whether a file's numbers of heads, their sizes and their rotary positions fit each other.
#pragma once

#include <string>

#include "engine/model/gguf_header.h"

namespace eliza {

// Throws Error where they would end the process when a graph is computed. `arch` is what the keys begin with.
void check_attention(const GgufHeader & file, const std::string & arch, uint32_t n_layers);

}  // namespace eliza
