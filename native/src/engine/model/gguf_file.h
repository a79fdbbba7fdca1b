// A GGUF file as it was when it was read: files are replaced while programs run.
#pragma once

#include <cstdint>
#include <string>

namespace eliza {

struct GgufFile {
    std::string path;
    std::string version;  // see version_of_file()
    uint64_t header_bytes = 0;

    // True while the file was neither written to nor replaced.
    bool is_unchanged() const;

    // Tells its contents from those of other files, here and on other machines, by its size, its whole header and
    // samples of its tensors. Throws Error if it cannot be read.
    std::string fingerprint() const;
};

}  // namespace eliza
