// Checks model files before llama.cpp reads them. With many broken files, llama.cpp ends the process or never returns,
// although it could reject the file. Run these checks before opening a file of unknown origin.
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
