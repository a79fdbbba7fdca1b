// The dimensions of a small model for each architecture of llama.cpp.
#pragma once

#include <cstdint>

#include "architectures/metadata.h"

namespace eliza {

// Writes the metadata that an architecture's loader requires, except the vocabulary. The model has two layers, or the
// fewest that include every kind of layer. Sliding windows, sparse attention and the number of experts are smaller than
// the checker's prompts need, so that something is left out. Most architectures ignore most of the keys.
void describe_model(Metadata & metadata, uint32_t n_vocab);

}  // namespace eliza
