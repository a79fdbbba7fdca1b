// Whether a model file can be handed to llama.cpp. Much of what a broken file holds makes llama.cpp end the process or
// never come back, where it could refuse the file. Who opens a file of unknown origin asks here first.
#pragma once

#include <string>
#include <vector>

#include "engine/model/gguf_file.h"

namespace eliza {

// Throws Error (ELIZA_ERR_BUNDLE_INVALID) that names the file, the key or the tensor, its value and the limit. Checks
// and returns all files of a split model. What llama.cpp refuses by itself is left to it.
std::vector<GgufFile> check_model_file(const std::string & path);

// The same for a file that holds a LoRA adapter.
GgufFile check_adapter_file(const std::string & path);

}  // namespace eliza
