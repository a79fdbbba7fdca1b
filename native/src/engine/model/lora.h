// LoRA adapters: small matrices in separate files that are added to a model's matrices.
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

// Parses [{"path": "...", "scale": 1.0}, ...]; "" means none. Throws an Error that names the element.
std::vector<LoraFile> parse_lora(const std::string & text);

}  // namespace eliza
