#include "engine/model/gguf_tensor_check.h"

#include <algorithm>
#include <array>

#include "ggml.h"

namespace eliza {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string shape_of(const GgufTensor & tensor) {
    std::string text;
    for (const uint64_t dim : tensor.dims) text += (text.empty() ? "[" : ", ") + std::to_string(dim);
    return text.empty() ? "[]" : text + "]";
}

std::string type_name(uint32_t type) {
    return type < GGML_TYPE_COUNT ? ggml_type_name(static_cast<ggml_type>(type)) : std::to_string(type);
}

bool is_number_table(std::string_view name) {
    // Tables of token ids and expert ids.
    return name == "d2t" || ends_with(name, "_tid2eid.weight") || name.find("token_ordering") != std::string_view::npos;
}

// ggml has no matrix product for the types listed here, and would call a null pointer.
void check_type(const GgufHeader & file, const GgufTensor & tensor) {
    constexpr std::array<ggml_type, 8> unusable{GGML_TYPE_I8,  GGML_TYPE_I16,  GGML_TYPE_I32,  GGML_TYPE_I64,
                                                GGML_TYPE_F64, GGML_TYPE_Q8_1, GGML_TYPE_Q8_K, GGML_TYPE_COUNT};
    const auto type = static_cast<ggml_type>(std::min<uint32_t>(tensor.type, GGML_TYPE_COUNT));
    if (is_number_table(tensor.name) && (type == GGML_TYPE_I32 || type == GGML_TYPE_I64)) return;
    if (std::find(unusable.begin(), unusable.end(), type) != unusable.end()) {
        throw file.error("the tensor " + std::string(tensor.name) + " has the type " + type_name(tensor.type) +
                         ", which is not supported for weights");
    }
}

// Activations are f32. Tensors that are multiplied with or added to activations element by element must be f32 too, and
// so must the tensors of a few operators of recurrent models. binary-ops.cpp and ops.cpp assert this in every thread.
bool is_elementwise(std::string_view name) {
    constexpr std::array<std::string_view, 11> ends{
        ".bias",  ".scale", ".scales",      "_scale.weight", "_score.weight",   "_base.weight",
        ".ssm_a", ".ssm_d", ".exp_probs_b", "norm_2.weight", "norm_exps.weight"};
    constexpr std::array<std::string_view, 3> parts{".ssm_conv1d", ".shortconv.conv.", ".z_l_init"};
    if (ends_with(name, "norm") || ends_with(name, "norm.weight")) return true;
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return ends_with(name, end); }) ||
           std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

void check_elementwise(const GgufHeader & file, const GgufTensor & tensor) {
    if (is_elementwise(tensor.name) && tensor.type != GGML_TYPE_F32) {
        throw file.error("the tensor " + std::string(tensor.name) + " has the type " + type_name(tensor.type) +
                         "; norms, biases and scales must be f32");
    }
}

}  // namespace

void check_model_tensors(const GgufHeader & file) {
    for (const GgufTensor & tensor : file.tensors()) {
        check_type(file, tensor);
        check_elementwise(file, tensor);
    }
}

void check_adapter_tensors(const GgufHeader & file) {
    for (const GgufTensor & tensor : file.tensors()) {
        if (ends_with(tensor.name, "_norm.weight")) continue;  // llama.cpp does not read these
        check_type(file, tensor);
        // ggml_mul_mat asserts that both tensors are matrices, and its code divides by their sizes.
        const bool has_more = tensor.dim(2) != 1 || tensor.dim(3) != 1;
        if (has_more || tensor.dim(0) == 0 || tensor.dim(1) == 0) {
            throw file.error("the tensor " + std::string(tensor.name) + " has the shape " + shape_of(tensor) +
                             "; expected a matrix with at least one row and column");
        }
    }
}

}  // namespace eliza
