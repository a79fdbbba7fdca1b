// Checks model files before llama.cpp reads them: for sizes that would exhaust memory, and for faults at which
// llama.cpp would never return, or end the process on another thread or only later. The faults that it finds while it
// loads a model are left to AbortGuard.
#pragma once

#include <string>
#include <vector>

#include "engine/model/gguf_file.h"

namespace eliza {

// Checks all files of a split model and returns them. Throws an Error (ELIZA_ERR_BUNDLE_INVALID) that names the file,
// the key or tensor, its value and the limit. Files that llama.cpp rejects by itself are left to it.
std::vector<GgufFile> check_model_file(const std::string & path);

// Checks a file with a LoRA adapter and returns it. Throws an Error like check_model_file().
GgufFile check_adapter_file(const std::string & path);

}  // namespace eliza
