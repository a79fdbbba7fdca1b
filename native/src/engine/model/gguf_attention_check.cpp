#include "engine/model/gguf_attention_check.h"

#include <numeric>
#include <string>
#include <vector>

namespace eliza {
namespace {

// llama.cpp multiplies head counts and head sizes in 32 bits. Beyond these limits the products could overflow.
constexpr uint32_t max_heads = 65'536;
constexpr uint32_t max_head_size = 32'768;

// Returns false for the architectures of llama_model_rope_type that never have rotary positions.
bool has_rope(const GgufArch & arch) {
    return !arch.is_one_of({"gpt2",        "mpt",
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
bool needs_sections(const GgufArch & arch) {
    return arch.is_one_of(
        {"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "clef", "qwen4exp", "qwen3tts"});
}
bool may_have_sections(const GgufArch & arch) {
    return needs_sections(arch) || arch.is_one_of({"bailingmoe3", "dflash", "glm4", "glm4moe", "hunyuan_vl"});
}

// ops.cpp asserts in every thread that an even number of values is rotated, and no more than a head has.
void check_rotated(const GgufArch & arch, const std::string & name, uint32_t n, uint32_t size) {
    arch.require(n % 2 == 0 && n <= size, name, n,
                 "expected an even number of at most " + std::to_string(size) + ", the size of a head");
}

// ops.cpp also asserts that the parts of a position fit a head, and, where parts are required, that one of the first
// three is not empty. llama.cpp divides by their sum, which negative numbers could make 0.
void check_sections(const GgufArch & arch, uint32_t size) {
    const std::string name = arch.key("rope.dimension_sections");
    const std::vector<uint32_t> sections = arch.file().per_layer(name, 4);
    const uint64_t sum = std::accumulate(sections.begin(), sections.end(), uint64_t(0));
    if (sum > size) {
        throw arch.file().error(name + " add up to " + std::to_string(sum) + "; expected at most " +
                                std::to_string(size) + ", the size of a head");
    }
    if (needs_sections(arch) && (sections.empty() || sum == sections[3])) {
        throw arch.file().error(name + " is missing, or its first three numbers are 0, but the architecture " +
                                arch.arch() + " requires it");
    }
}

}  // namespace

void check_attention(const GgufArch & arch, uint32_t n_layers) {
    const std::vector<uint32_t> heads = arch.file().per_layer(arch.key("attention.head_count"), n_layers);
    for (const std::string name : {"attention.head_count", "attention.head_count_kv"}) {
        for (const uint32_t n : arch.file().per_layer(arch.key(name), static_cast<uint32_t>(heads.size()))) {
            arch.require(n <= max_heads, name, n, "the limit is " + std::to_string(max_heads));
        }
    }
    for (const std::string name : {"attention.key_length", "attention.value_length"}) {
        const uint32_t length = arch.u32_or(name, 0);
        arch.require(length <= max_head_size, name, length, "the limit is " + std::to_string(max_head_size));
    }
    if (heads.empty() || heads[0] == 0) return;  // llama.cpp then ignores the sizes
    const uint32_t size = arch.u32_or("attention.key_length", arch.u32_or("embedding_length", 0) / heads[0]);
    if (has_rope(arch)) {
        const uint32_t n_rotated = arch.u32_or("rope.dimension_count", size);
        check_rotated(arch, "rope.dimension_count", n_rotated, size);
        // Some architectures have layers with windows even if the size of the window is 0.
        if (arch.u32_or("attention.sliding_window", 0) > 0 ||
            arch.file().has(arch.key("attention.sliding_window_pattern"))) {
            check_rotated(arch, "rope.dimension_count_swa", arch.u32_or("rope.dimension_count_swa", n_rotated),
                          arch.u32_or("attention.key_length_swa", size));
        }
    }
    if (may_have_sections(arch)) check_sections(arch, size);
}

}  // namespace eliza
