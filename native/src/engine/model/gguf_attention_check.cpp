#include "engine/model/gguf_attention_check.h"

#include <algorithm>
#include <initializer_list>

namespace eliza {
namespace {

// llama.cpp multiplies head counts and head sizes in 32 bits. Beyond these limits the products could overflow.
constexpr uint32_t max_heads = 65'536;
constexpr uint32_t max_head_size = 32'768;

bool is_one_of(const std::string & arch, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), arch) != list.end();
}

// Returns false for the architectures of llama_model_rope_type that never have rotary positions.
bool has_rope(const std::string & arch) {
    return !is_one_of(arch, {"gpt2",        "mpt",
                             "refact",      "bloom",
                             "mamba",       "mamba2",
                             "jamba",       "jina-bert-v2",
                             "t5",          "t5encoder",
                             "jais",        "rwkv6",
                             "rwkv6qwen2",  "rwkv7",
                             "arwkv7",      "wavtokenizer-dec",
                             "nemotron_h",  "nemotron_h_moe",
                             "kimi-linear", "kimi-k3",
                             "glm5-next"});
}

// Also from llama_model_rope_type: architectures whose positions always have several parts, and architectures whose
// positions may have them.
bool needs_sections(const std::string & arch) {
    return is_one_of(
        arch, {"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "clef", "qwen4exp", "qwen3tts"});
}
bool may_have_sections(const std::string & arch) {
    return needs_sections(arch) || is_one_of(arch, {"bailingmoe3", "dflash", "glm4", "glm4moe", "hunyuan_vl"});
}

class Attention {
public:
    Attention(const GgufHeader & file, const std::string & arch, uint32_t n_layers)
        : file_(file), arch_(arch), heads_(file.per_layer(key("attention.head_count"), n_layers)) {}

    void check() const {
        for (const std::string name : {"attention.head_count", "attention.head_count_kv"}) {
            for (const uint32_t n : file_.per_layer(key(name), static_cast<uint32_t>(heads_.size()))) {
                require(n <= max_heads, name, n, max_heads);
            }
        }
        for (const std::string name : {"attention.key_length", "attention.value_length"}) {
            require(u32_or(name, 0) <= max_head_size, name, u32_or(name, 0), max_head_size);
        }
        if (heads_.empty() || heads_[0] == 0) return;  // llama.cpp then ignores the sizes
        const uint32_t size = u32_or("attention.key_length", u32_or("embedding_length", 0) / heads_[0]);
        if (has_rope(arch_)) {
            const uint32_t n_rotated = u32_or("rope.dimension_count", size);
            check_rotated("rope.dimension_count", n_rotated, size);
            // Some architectures have layers with windows even if the size of the window is 0.
            if (u32_or("attention.sliding_window", 0) > 0 || file_.has(key("attention.sliding_window_pattern"))) {
                check_rotated("rope.dimension_count_swa", u32_or("rope.dimension_count_swa", n_rotated),
                              u32_or("attention.key_length_swa", size));
            }
        }
        if (may_have_sections(arch_)) check_sections(size);
    }

private:
    std::string key(const std::string & name) const { return arch_ + "." + name; }
    uint32_t u32_or(const std::string & name, uint32_t missing) const { return file_.u32(key(name)).value_or(missing); }

    void require(bool is_good, const std::string & name, uint32_t value, uint32_t most) const {
        if (!is_good) {
            throw file_.error(key(name) + " is " + std::to_string(value) + "; the limit is " + std::to_string(most));
        }
    }

    // ops.cpp asserts in every thread that an even number of values is rotated, and no more than a head has.
    void check_rotated(const std::string & name, uint32_t n, uint32_t size) const {
        if (n % 2 != 0 || n > size) {
            throw file_.error(key(name) + " is " + std::to_string(n) + "; expected an even number of at most " +
                              std::to_string(size) + ", the size of a head");
        }
    }

    // ops.cpp also asserts that the parts of a position fit a head, and, where parts are required, that one of the
    // first three is not empty. llama.cpp divides by their sum, which negative numbers could make 0.
    void check_sections(uint32_t size) const {
        const std::string name = key("rope.dimension_sections");
        const std::vector<uint32_t> sections = file_.per_layer(name, 4);
        uint64_t sum = 0;
        for (const uint32_t section : sections) sum += section;
        if (sum > size) {
            throw file_.error(name + " add up to " + std::to_string(sum) + "; expected at most " +
                              std::to_string(size) + ", the size of a head");
        }
        if (needs_sections(arch_) && (sections.empty() || sum == sections[3])) {
            throw file_.error(name + " is missing, or its first three numbers are 0, but the architecture " + arch_ +
                              " requires it");
        }
    }

    const GgufHeader & file_;
    const std::string & arch_;
    const std::vector<uint32_t> heads_;
};

}  // namespace

void check_attention(const GgufHeader & file, const std::string & arch, uint32_t n_layers) {
    Attention(file, arch, n_layers).check();
}

}  // namespace eliza
