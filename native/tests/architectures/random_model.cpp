#include "architectures/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "architectures/metadata.h"
#include "architectures/model_shape.h"
#include "architectures/vocabulary.h"
#include "ggml-backend.h"
#include "llama-cpp.h"

namespace eliza {
namespace {

// The standard deviation of the logits: about that of trained models, and large enough that two tokens rarely tie.
constexpr float logit_deviation = 2.5f;

bool contains(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

bool ends_with(std::string_view name, std::string_view end) {
    return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

// Random numbers that depend only on the name, the same on every machine.
class Random {
public:
    explicit Random(std::string_view name) {
        for (const char byte : name) {  // FNV-1a
            state_ = (state_ ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
        }
    }

    // Mean 0 and standard deviation 1: the sum of four uniform numbers of 16 bits.
    float next() {
        uint64_t bits = state_ += 0x9e3779b97f4a7c15u;  // SplitMix64
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
        bits ^= bits >> 31;
        const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        return (static_cast<float>(sum) / 65535.0f - 2.0f) * 1.7320508f;
    }

private:
    uint64_t state_ = 0xcbf29ce484222325u;
};

// The distribution of a tensor's values, chosen so that activations keep their magnitude.
struct Spread {
    float mean, deviation;
};

Spread spread_of(const ggml_tensor & tensor) {
    const std::string_view name = tensor.name;
    const bool is_vector = ggml_n_dims(&tensor) == 1;
    if (contains(name, "rope_f")) {  // divisors of frequencies
        return {1.0f, 0.0f};
    }
    if (contains(name, "ssm_a")) {  // a decay
        return {-1.0f, 0.25f};
    }
    if (contains(name, "norm") && ends_with(name, "weight")) {
        return {1.0f, 0.1f};
    }
    if (is_vector || ends_with(name, "bias")) {
        return {0.0f, 0.1f};
    }
    if (name == "token_embd.weight") {
        return {0.0f, 1.0f};
    }
    const float keeps_size = 1.0f / std::sqrt(static_cast<float>(tensor.ne[0]));
    if (name == "output.weight") {
        return {0.0f, logit_deviation * keeps_size};
    }
    // Attention that picks single tokens, so that logits depend on the whole context.
    const bool picks = contains(name, "attn_q") || contains(name, "attn_k") || contains(name, "indexer");
    return {0.0f, (picks ? 1.5f : 1.0f) * keeps_size};
}

std::vector<float> random_values(const ggml_tensor & tensor) {
    const Spread spread = spread_of(tensor);
    Random random(tensor.name);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(&tensor)));
    std::generate(values.begin(), values.end(), [&] { return spread.mean + spread.deviation * random.next(); });
    if (contains(tensor.name, "ssm_a")) {
        for (float & value : values) {
            value = -std::fabs(value);
        }
    }
    return values;
}

using Tensors = std::vector<const ggml_tensor *>;

void fill_tensor(ggml_tensor * tensor, void * tensors) {
    const std::vector<float> values = random_values(*tensor);
    std::vector<uint8_t> bytes(ggml_nbytes(tensor));
    if (tensor->type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(tensor, values.data(), 0, bytes.size());
    } else {
        ggml_quantize_chunk(tensor->type, values.data(), bytes.data(), 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
        ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
    }
    auto & all = *static_cast<Tensors *>(tensors);
    // A tensor that is used twice may be stored twice, with the same values.
    const std::string_view name = tensor->name;
    if (std::none_of(all.begin(), all.end(), [&](const ggml_tensor * other) { return name == other->name; })) {
        all.push_back(tensor);
    }
}

// Tensors with a row for each token. All others are in single precision.
constexpr struct {
    const char * name;
    ggml_type type;
} types_of_large_tensors[] = {{"token_embd.weight", GGML_TYPE_F16},
                              {"output.weight", GGML_TYPE_F16},
                              {"per_layer_token_embd.weight", GGML_TYPE_Q4_0}};

// llama.cpp creates every tensor that a file may contain. This tensor must be left out, because no file contains both
// it and its alternative.
bool is_left_out(const std::string & architecture, std::string_view tensor) {
    return architecture == "rwkv6qwen2" && contains(tensor, "time_mix_first");
}

// Returns the type in which llama.cpp should create a tensor.
void ask_for_type(Metadata & metadata, const char * name, ggml_type type) {
    ggml_tensor tensor{};
    tensor.type = type;
    ggml_set_name(&tensor, name);
    gguf_add_tensor(metadata.get(), &tensor);
}

}  // namespace

void write_random_model(const std::string & architecture, const gguf_context * vocabulary, const std::string & file) {
    Metadata metadata(architecture);
    describe_model(metadata, describe_vocabulary(metadata, vocabulary));

    const gguf_context_ptr written(gguf_init_empty());
    gguf_set_kv(written.get(), metadata.get());
    for (const auto & large : types_of_large_tensors) {
        ask_for_type(metadata, large.name, large.type);
    }
    Tensors tensors;
    const llama_model_ptr model(
        llama_model_init_from_user(metadata.get(), fill_tensor, &tensors, llama_model_default_params()));
    if (model == nullptr) {
        throw std::runtime_error("llama.cpp rejects the model");
    }
    // llama_model_save_to_file omits keys that some architectures need, and does not support some architectures.
    for (const ggml_tensor * tensor : tensors) {
        if (!is_left_out(architecture, tensor->name)) {
            gguf_add_tensor(written.get(), tensor);
        }
    }
    if (!gguf_write_to_file(written.get(), file.c_str(), /*only_meta=*/false)) {
        throw std::runtime_error(file + " cannot be written");
    }
}

}  // namespace eliza
