// Whether a file's tensors are of types and sizes that llama.cpp's operators take.
#pragma once

#include "engine/model/gguf_header.h"

namespace eliza {

// Both throw Error that names the tensor.
void check_model_tensors(const GgufHeader & file);
void check_adapter_tensors(const GgufHeader & file);

}  // namespace eliza
