// Identifies the version of a GGUF file that was read, because files may be replaced while a program runs.
#pragma once

#include <cstdint>
#include <string>

namespace eliza {

struct GgufFile {
    std::string path;
    std::string version;  // see version_of_file()
    uint64_t header_bytes = 0;

    // Returns true if the file has not been written to or replaced.
    bool is_unchanged() const;

    // Returns a string that is the same for files with the same contents, on every machine. It is computed from the
    // size, the whole header and samples of the tensors. Throws an Error if the file cannot be read.
    std::string fingerprint() const;
};

}  // namespace eliza
