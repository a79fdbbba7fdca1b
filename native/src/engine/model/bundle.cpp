// Finds the model file of a bundle. Declared in engine/model/model.h.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "engine/model/model.h"
#include "error.h"
#include "platform/files.h"

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
    std::vector<fs::path> models;
    try {
        for (const fs::path & path : entries_of(directory)) {
            if (path.extension() == ".gguf" && !is_companion(path.filename().string())) {
                models.push_back(path);
            }
        }
    } catch (const fs::filesystem_error & error) {
        throw bundle_error("cannot read " + directory.string() + ": " + error.code().message());
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
    for (const fs::path & path : entries_of(folder)) {
        if (path.extension() == ".safetensors") {
            return "its model is not in the GGUF format: fetch the model as a .gguf file, or convert it with "
                   "llama.cpp's "
                   "convert_hf_to_gguf.py";
        }
    }
    return "there is no .gguf file in it";
}

fs::path model_of(const fs::path & bundle) {
    const fs::path folder = bundle / "text";
    if (kind_of(folder) != FileKind::folder) {
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

void check_header(const fs::path & path) {
    const File file = open_regular_file(path.u8string());
    if (file == nullptr) {
        throw bundle_error(errno == 0 ? path.string() + " is not a regular file"
                                      : "cannot open " + path.string() + ": " + std::strerror(errno));
    }
    std::array<char, 4> magic{};
    if (std::fread(magic.data(), 1, magic.size(), file.get()) == 0) {
        throw bundle_error(path.string() + " is not a GGUF file: it is empty");
    }
    if (std::memcmp(magic.data(), "GGUF", magic.size()) != 0) {
        throw bundle_error(path.string() + " is not a GGUF file: it does not begin with the letters GGUF");
    }
}

}  // namespace

std::string find_model_file(const std::string & bundle) {
    const fs::path path = path_of(bundle);
    const FileKind kind = kind_of(path);
    if (kind == FileKind::none) {
        throw bundle_error("no such file or directory: " + bundle);
    }
    const fs::path file = kind == FileKind::folder ? model_of(path) : path;
    check_header(file);
    return file.u8string();
}

}  // namespace eliza
