#include "engine/model/gguf_check.h"

#include <algorithm>

#include "engine/model/gguf_attention_check.h"
#include "engine/model/gguf_header.h"
#include "engine/model/gguf_tensor_check.h"
#include "engine/model/gguf_vocab_check.h"
#include "llama.h"

namespace eliza {
namespace {

constexpr uint32_t max_layers = 512;  // LLAMA_MAX_LAYERS in llama-hparams.h

uint32_t check_layers(const GgufArch & settings) {
    const auto n_layers = settings.u32("block_count");
    if (!n_layers) throw settings.file().error(settings.key("block_count") + " is missing or is not a 32-bit number");
    settings.require(*n_layers >= 1 && *n_layers <= max_layers, "block_count", *n_layers,
                     "expected 1 to " + std::to_string(max_layers));
    // block_count includes the layers of the multi-token prediction heads. llama.cpp asserts only that there are no
    // more heads than layers. If all layers belonged to heads, none would be left for the model itself. An assistant
    // consists of such layers only.
    const uint32_t n_heads = settings.u32_or("nextn_predict_layers", 0);
    const bool is_assistant = settings.is_one_of({"gemma4-assistant"});
    settings.require(is_assistant ? n_heads == *n_layers : n_heads < *n_layers, "nextn_predict_layers", n_heads,
                     "the model has " + std::to_string(*n_layers) + " layers, including those of the heads");
    return *n_layers;
}

// The code for a layer that uses no experts would read a missing tensor.
void check_routed_layers(const GgufArch & settings, const GgufHeader & part, uint32_t n_layers) {
    if (settings.u32_or("expert_count", 0) == 0) return;
    const std::string name = "expert_used_count";
    const std::vector<uint32_t> used = settings.file().per_layer(settings.key(name), n_layers);
    for (size_t layer = 0; layer < used.size(); ++layer) {
        const std::string router = "blk." + std::to_string(layer) + ".ffn_gate_inp.weight";
        if (used[layer] == 0 && part.tensor(router) != nullptr) {
            throw part.error(settings.key(name) + "[" + std::to_string(layer) +
                             "] is 0, but the layer has the tensor " + router);
        }
    }
}

// llama.cpp reads embedding_length_out numbers per row from a tensor whose rows have only the model's width.
void check_output_width(const GgufArch & settings) {
    const uint32_t width = settings.u32_or("embedding_length", 0);
    const uint32_t out = settings.u32_or("embedding_length_out", 0);
    const uint32_t dense = settings.u32_or("dense_3_feat_out", 0);
    // The first two architectures have several residual streams, so llama.cpp computes the size instead of reading it.
    // For an assistant, this is the width of its model.
    const bool has_other_rows = settings.is_one_of({"deepseek4", "qwen4exp", "gemma4-assistant"});
    settings.require(out <= std::max(width, dense) || has_other_rows, "embedding_length_out", out,
                     "the limit is " + settings.key("embedding_length") + ", " + std::to_string(width));
}

// The operators of the norms assert eps >= 0, which is false for NaN.
void check_epsilons(const GgufArch & settings) {
    for (const std::string name :
         {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.group_norm_epsilon"}) {
        const float value = settings.file().f32(settings.key(name)).value_or(0.0f);
        settings.require(value >= 0.0f, name, std::to_string(value), "expected 0 or more");
    }
}

uint32_t check_settings(const GgufArch & settings) {
    const uint32_t n_layers = check_layers(settings);
    check_epsilons(settings);
    check_output_width(settings);
    check_attention(settings, n_layers);
    // llama.cpp reads it as a signed number when it computes the sizes of caches.
    const uint32_t n_ctx = settings.u32_or("context_length", 1);
    settings.require(n_ctx >= 1 && n_ctx <= INT32_MAX, "context_length", n_ctx,
                     "expected 1 to " + std::to_string(INT32_MAX) + " tokens");
    return n_layers;
}

// Returns the paths of a split model's files, except the first.
std::vector<std::string> other_parts(const GgufHeader & first, const std::string & path) {
    const auto n_parts = first.number<uint16_t>("split.count", GGUF_TYPE_UINT16);
    if (!n_parts || *n_parts < 2) return {};
    // llama_split_prefix and llama_split_path need a buffer for a path.
    std::string prefix(path.size() + 1, '\0');
    const int length = llama_split_prefix(prefix.data(), prefix.size(), path.c_str(), 0, *n_parts);
    if (length <= 0) {
        std::string name(32, '\0');  // the end of the first file's name
        name.resize(static_cast<size_t>(llama_split_path(name.data(), name.size(), "", 0, *n_parts)));
        throw first.error("is one of the " + std::to_string(*n_parts) +
                          " files of a model (split.count); expected the first one, whose name ends in \"" + name +
                          "\": pass the path of that file, or give the files their original names again");
    }
    std::vector<std::string> paths;
    for (int i = 1; i < *n_parts; ++i) {
        std::string name(path.size() + 32, '\0');
        const int size = llama_split_path(name.data(), name.size(), prefix.c_str(), i, *n_parts);
        paths.push_back(name.substr(0, static_cast<size_t>(size)));
    }
    return paths;
}

// Says what a file is that is no language model. llama.cpp would only say which key is missing.
void check_kind(const GgufHeader & file) {
    if (const auto part = file.number<uint16_t>("split.no", GGUF_TYPE_UINT16).value_or(0); part > 0) {
        throw file.error("is file " + std::to_string(part + 1) + " of a model of " +
                         std::to_string(file.number<uint16_t>("split.count", GGUF_TYPE_UINT16).value_or(0)) +
                         " files: pass the path of the first file");
    }
    const std::string_view type = file.text("general.type").value_or("");
    const std::string_view arch = file.text("general.architecture").value_or("");
    if (type == "adapter") {
        throw file.error("is a LoRA adapter: pass the path of the model, and the adapter in option lora");
    }
    if (type == "imatrix" || file.has("imatrix.chunk_count")) {
        throw file.error("is an importance matrix for quantizing a model: pass the path of the model");
    }
    if (type == "mmproj" || arch == "clip") {
        throw file.error("is a projector for images or sound (mmproj): pass the path of its language model");
    }
    if (!arch.empty() && !file.has("tokenizer.ggml.model")) {
        throw file.error("is not a language model: it has no vocabulary (general.architecture is \"" +
                         std::string(arch) + "\")");
    }
}

}  // namespace

std::vector<GgufFile> check_model_file(const std::string & path) {
    const GgufHeader file(path);
    check_kind(file);
    const auto arch = file.text("general.architecture");
    if (!arch || arch->empty()) throw file.error("general.architecture is missing or is not a string");
    const GgufArch settings(file, *arch);
    const uint32_t n_layers = check_settings(settings);
    check_vocabulary(file);
    check_model_tensors(file);
    check_routed_layers(settings, file, n_layers);
    std::vector<GgufFile> files = {file.file()};
    for (const std::string & part_path : other_parts(file, path)) {
        const GgufHeader part(part_path);
        check_model_tensors(part);
        check_routed_layers(settings, part, n_layers);
        files.push_back(part.file());
    }
    return files;
}

GgufFile check_adapter_file(const std::string & path) {
    const GgufHeader file(path);
    check_adapter_tensors(file);
    return file.file();
}

}  // namespace eliza
