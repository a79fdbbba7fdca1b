#include "engine/pass/layer_rows.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "ggml-backend.h"

namespace eliza {

void append_rows(const ggml_tensor & tensor, std::vector<float> & out) {
    const auto width = static_cast<size_t>(tensor.ne[0]), n = static_cast<size_t>(tensor.ne[1]);
    const size_t begin = out.size();
    out.resize(begin + n * width);
    if (tensor.nb[1] == width * sizeof(float)) {
        ggml_backend_tensor_get(&tensor, out.data() + begin, 0, n * tensor.nb[1]);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        ggml_backend_tensor_get(&tensor, out.data() + begin + i * width, i * tensor.nb[1], width * sizeof(float));
    }
}

void LayerRows::begin_pass(const std::vector<int32_t> & layers, bool stops) {
    rows_.clear();
    for (const int32_t layer : layers) {
        rows_[layer] = {};
    }
    stops_ = stops;
}

int32_t LayerRows::layer_of(const ggml_tensor & tensor) const {
    constexpr std::string_view output_of_block = "l_out-";
    const std::string_view name = tensor.name;
    if (name == "result_norm") {
        return n_layers_;
    }
    if (name.substr(0, output_of_block.size()) != output_of_block) {
        return -1;
    }
    int32_t block = -1;
    const auto [end, error] = std::from_chars(name.data() + output_of_block.size(), name.data() + name.size(), block);
    if (error != std::errc() || end != name.data() + name.size()) {  // for example, "l_out-0 (reshaped)"
        return -1;
    }
    return block + 1 < n_layers_ ? block + 1 : -1;
}

bool LayerRows::wants(const ggml_tensor & tensor) const {
    return !rows_.empty() && tensor.type == GGML_TYPE_F32 && static_cast<size_t>(tensor.ne[0]) == n_embd_ &&
           rows_.count(layer_of(tensor)) > 0;
}

// A pass with several parts has the tensor once for each part.
bool LayerRows::take(const ggml_tensor & tensor) {
    const int32_t layer = layer_of(tensor);
    append_rows(tensor, rows_[layer]);
    return !stops_ || layer != rows_.rbegin()->first;
}

const float * LayerRows::row(int32_t layer, Batch of, size_t place, size_t row) const {
    const auto found = rows_.find(layer);
    const size_t n = found == rows_.end() ? 0 : found->second.size() / n_embd_;
    if (n == 0 || (n != of.n_tokens && n != of.n_rows)) {
        return nullptr;
    }
    return found->second.data() + (n == of.n_tokens ? place : row) * n_embd_;
}

}  // namespace eliza
