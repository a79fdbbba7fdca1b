// Finds the model file of a bundle. Declared in engine/model/model.h.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "engine/model/model.h"
#include "error.h"

namespace eliza {
namespace {

namespace fs = std::filesystem;

Error bundle_error(const std::string & text) { return {ELIZA_ERR_BUNDLE_INVALID, text}; }

// Files next to the model that are not models.
bool is_companion(const std::string & name) {
    const std::array<const char *, 3> companions{"mmproj", "tokenizer", "codec"};
    return std::any_of(companions.begin(), companions.end(),
                       [&](const char * part) { return name.find(part) != std::string::npos; });
}

// Returns the model files in a folder, sorted by name, so that the first part of a split model comes first.
std::vector<fs::path> models_in(const fs::path & directory) {
    std::error_code error;
    std::vector<fs::path> models;
    for (const auto & entry : fs::directory_iterator(directory, error)) {
        const std::string name = entry.path().filename().string();
        if (entry.path().extension() == ".gguf" && !is_companion(name)) {
            models.push_back(entry.path());
        }
    }
    if (error) {
        throw bundle_error("cannot read " + directory.string() + ": " + error.message());
    }
    std::sort(models.begin(), models.end());
    return models;
}

// Returns the next step for the user if a folder is not a bundle.
std::string next_step(const fs::path & folder) {
    const std::vector<fs::path> models = models_in(folder);
    if (!models.empty()) {
        return "pass the path of the model in it: " + models.front().string();
    }
    std::error_code error;
    for (const auto & entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".safetensors") {
            return "its model is not in the GGUF format: fetch the model as a .gguf file, or convert it with "
                   "llama.cpp's "
                   "convert_hf_to_gguf.py";
        }
    }
    return "there is no .gguf file in it";
}

fs::path model_of(const fs::path & bundle) {
    const fs::path folder = bundle / "text";
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
        throw bundle_error(bundle.string() +
                           " is not a model bundle: expected a model file, or a folder with a model in " +
                           "its folder text/; " + next_step(bundle));
    }
    const std::vector<fs::path> models = models_in(folder);
    if (models.empty()) {
        throw bundle_error("no model in " + folder.string() +
                           " (expected *.gguf, other than mmproj, tokenizer or codec)");
    }
    return models.front();
}

// The type is checked before the file is opened, because opening a pipe may wait for ever.
void check_header(const fs::path & file) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
        throw bundle_error(file.string() + " is not a regular file");
    }
    if (fs::file_size(file, error) == 0) {
        throw bundle_error(file.string() + " is not a GGUF file: it is empty");
    }
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
        throw bundle_error("cannot open " + file.string() + ": " + std::strerror(errno));
    }
    std::array<char, 4> magic{};
    stream.read(magic.data(), magic.size());
    if (std::memcmp(magic.data(), "GGUF", magic.size()) != 0) {
        throw bundle_error(file.string() + " is not a GGUF file: it does not begin with the letters GGUF");
    }
}

}  // namespace

std::string find_model_file(const std::string & bundle) {
    std::error_code error;
    const fs::file_status status = fs::status(bundle, error);
    if (!fs::exists(status)) {
        throw bundle_error("no such file or directory: " + bundle);
    }
    const fs::path file = fs::is_directory(status) ? model_of(bundle) : fs::path(bundle);
    check_header(file);
    return file.string();
}

}  // namespace eliza
