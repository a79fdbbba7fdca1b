// The vocabulary of a small model: a real one, as an architecture wants it.
#pragma once

#include <cstdint>

#include "architectures/metadata.h"

namespace eliza {

// Takes over all that a file says of its tokenizer; returns how many tokens there are. Throws
// std::runtime_error where it lacks some of what every tokenizer has.
uint32_t describe_vocabulary(Metadata & metadata, const gguf_context * vocabulary);

}  // namespace eliza
