// Whether a file's vocabulary is one that llama.cpp can load and tokenize with.
#pragma once

#include "engine/model/gguf_header.h"

namespace eliza {

// Throws Error where the vocabulary would end the process or keep it for ever.
void check_vocabulary(const GgufHeader & file);

}  // namespace eliza
