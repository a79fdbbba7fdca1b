// Checks that llama.cpp's operators support the types and sizes of a file's tensors.
#pragma once

#include "engine/model/gguf_header.h"

namespace eliza {

// Both throw an Error that names the tensor.
void check_model_tensors(const GgufHeader & file);
void check_adapter_tensors(const GgufHeader & file);

}  // namespace eliza
