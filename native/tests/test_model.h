// The model for the native tests: the project's own small one.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "engine/model/model.h"
#include "log.h"

namespace eliza::test {

inline std::string model_path() {
    const char * path = std::getenv("ELIZA_TEST_MODEL");
    return path != nullptr ? path : ELIZA_TEST_MODEL;
}

// A folder that is not shared with other test runs on this machine.
inline std::filesystem::path own_folder(const std::string & name) {
    return std::filesystem::temp_directory_path() / ("eliza-" + name + "-" + std::to_string(getpid()));
}

// The same model with its weights in full precision. A quantized model also rounds activations. There, a difference in
// the last bit between a batch and single tokens becomes a hundredth of a logit.
inline std::string f32_model_path() {
    struct Copy {
        std::string path =
            (std::filesystem::temp_directory_path() / ("eliza-f32-" + std::to_string(getpid()) + ".gguf")).string();
        Copy() {
            init_backend();
            llama_model_quantize_params params = llama_model_quantize_default_params();
            params.ftype = LLAMA_FTYPE_ALL_F32;
            params.allow_requantize = true;
            if (llama_model_quantize(model_path().c_str(), path.c_str(), &params) != 0) {
                throw std::runtime_error("cannot write " + path);
            }
        }
        ~Copy() {
            if (getpid() == process) std::filesystem::remove(path);  // not in a forked child
        }
        const pid_t process = getpid();
    };
    static const Copy copy;
    return copy.path;
}

inline std::shared_ptr<Model> load_model() { return Model::load(model_path(), {}); }

}  // namespace eliza::test
