#include "engine/model/lora.h"

#include <cmath>

#include "error.h"
#include "json_input.h"

namespace eliza {

std::vector<LoraFile> parse_lora(const std::string & text) {
    if (text.empty()) {
        return {};
    }
    const Json adapters = parse_array(text, "lora", "adapters");
    std::vector<LoraFile> files;
    for (const Json & adapter : adapters) {
        const std::string place = at("lora", files.size());
        LoraFile file;
        file.path = member(adapter, "path", &Json::is_string, "a string", place).text();
        if (file.path.empty() || file.path.find('\0') != std::string::npos) {
            throw invalid_argument(place + ".path is empty or contains a NUL");
        }
        if (const Json * scale = optional_member(adapter, "scale", &Json::is_number, "a number", place)) {
            file.scale = scale->number<float>();
            if (!std::isfinite(file.scale)) {
                throw invalid_argument(place + ".scale is too large");
            }
        }
        files.push_back(std::move(file));
    }
    return files;
}

}  // namespace eliza
