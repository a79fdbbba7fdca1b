// The vocabulary of a small model: a real one, adapted to an architecture.
#pragma once

#include <cstdint>

#include "architectures/metadata.h"

namespace eliza {

// Copies all of a file's tokenizer metadata and returns the number of tokens. Throws std::runtime_error if a key is
// missing that every tokenizer has.
uint32_t describe_vocabulary(Metadata & metadata, const gguf_context * vocabulary);

}  // namespace eliza
