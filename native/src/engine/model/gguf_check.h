// Whether a model file can be handed to llama.cpp. Much of what a broken file holds makes llama.cpp end the process or
// never come back, where it could refuse the file. Who opens a file of unknown origin asks here first.
#pragma once

#include <string>

namespace eliza {

// Throws Error (ELIZA_ERR_BUNDLE_INVALID) that names the file, the key or the tensor, its value and the limit. All
// parts of a split model are looked at. What llama.cpp refuses by itself is left to it. A file that is replaced between
// this and the loading is not seen.
void check_model_file(const std::string & path);

// The same of a file that holds a LoRA adapter.
void check_adapter_file(const std::string & path);

}  // namespace eliza
