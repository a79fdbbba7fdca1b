// The sizes of a small model of each architecture that llama.cpp knows.
#pragma once

#include <cstdint>

#include "architectures/metadata.h"

namespace eliza {

// Writes what an architecture's loader asks for besides the vocabulary: two layers, or the fewest that
// show all kinds there are; sliding windows, sparse attention and experts narrower than the checker's
// prompts, so that something is left out. Most keys mean nothing to most architectures.
void describe_model(Metadata & metadata, uint32_t n_vocab);

}  // namespace eliza
