#include "engine/model/gguf_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "error.h"
#include "fnv1a.h"
#include "platform/files.h"

namespace eliza {

bool GgufFile::is_unchanged() const { return version_of_file(path) == version; }

std::string GgufFile::fingerprint() const {
    constexpr uint64_t n_samples = 256;
    constexpr size_t sample_bytes = 4096;
    const auto fail = [&](const std::string & reason) {
        return Error(ELIZA_ERR_BUNDLE_INVALID, path + ": cannot be read: " + reason);
    };
    const File file = open_regular_file(path);
    const std::optional<uint64_t> found = file != nullptr ? size_of(file.get()) : std::nullopt;
    if (!found) {
        throw fail(std::strerror(errno));
    }
    const uint64_t size = *found;
    Fnv1a hash;
    std::vector<char> bytes(1 << 16);
    const auto add = [&](uint64_t begin, uint64_t n) {
        if (seek(file.get(), begin) != 0) {
            throw fail(std::strerror(errno));
        }
        for (uint64_t done = 0; done < n;) {
            const size_t got = std::fread(bytes.data(), 1, std::min<uint64_t>(bytes.size(), n - done), file.get());
            hash.add(bytes.data(), got);
            done += got;
            if (got == 0) {  // the end of the file
                return;
            }
        }
    };
    add(0, header_bytes);
    for (uint64_t i = 0; i < n_samples; ++i) {
        add(size / n_samples * i, sample_bytes);
    }
    char text[64];
    std::snprintf(text, sizeof text, "%llu-%016llx", static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(hash.value()));
    return text;
}

}  // namespace eliza
