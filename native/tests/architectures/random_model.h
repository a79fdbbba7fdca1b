// Writes a small model with random weights as a file.
#pragma once

#include <string>

#include "gguf.h"

namespace eliza {

// Writes a model of an architecture named as in `llm_arch_name`, with the given vocabulary; the bytes are the same
// every time. Throws std::runtime_error with the reason if the model cannot be created. llama.cpp may also end the
// process.
void write_random_model(const std::string & architecture, const gguf_context * vocabulary, const std::string & file);

}  // namespace eliza
