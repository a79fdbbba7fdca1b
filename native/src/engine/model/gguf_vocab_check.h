// Checks that llama.cpp can load a file's vocabulary and tokenize with it.
#pragma once

#include "engine/model/gguf_header.h"

namespace eliza {

// Throws an Error if the vocabulary would make llama.cpp end the process or never return.
void check_vocabulary(const GgufHeader & file);

}  // namespace eliza
