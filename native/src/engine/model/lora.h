// LoRA adapters: small matrices in files of their own that are added to a model's.
#pragma once

#include <string>
#include <tuple>
#include <vector>

namespace eliza {

struct LoraFile {
    std::string path;
    float scale = 1.0f;

    friend bool operator<(const LoraFile & a, const LoraFile & b) {
        return std::tie(a.path, a.scale) < std::tie(b.path, b.scale);
    }
};

// Reads [{"path": "...", "scale": 1.0}, ...]; "" is none. Throws Error that names the place.
std::vector<LoraFile> parse_lora(const std::string & text);

}  // namespace eliza
