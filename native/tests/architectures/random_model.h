// A small model with random weights, as a file.
#pragma once

#include <string>

#include "gguf.h"

namespace eliza {

// Writes a model of an architecture that `llm_arch_name` names around a vocabulary, the same bytes each
// time. Throws std::runtime_error that says why it cannot be made; where llama.cpp ends the process, it
// has been ended.
void write_random_model(const std::string & architecture, const gguf_context * vocabulary, const std::string & file);

}  // namespace eliza
