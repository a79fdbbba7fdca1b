// Copies hidden states out of a forward pass while it runs, from the tensors that llama.cpp names "l_out-i" (the output
// of block i, which is the input of block i + 1) and "result_norm" (the output of the final norm).
//
// A pass whose tokens need nothing else can be stopped after the deepest of these tensors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ggml.h"

namespace eliza {

// Copies the rows of a matrix of 32-bit floats from its device.
void append_rows(const ggml_tensor & tensor, std::vector<float> & out);

class LayerRows {
public:
    // Layer i < n_layers is the input of block i; layer n_layers is the output of the final norm.
    LayerRows(int32_t n_layers, int32_t n_embd) : n_layers_(n_layers), n_embd_(static_cast<size_t>(n_embd)) {}

    // The layers wanted of the next pass, in any order. With `stops`, the pass ends after the deepest of them.
    void begin_pass(const std::vector<int32_t> & layers, bool stops);

    bool is_empty() const { return rows_.empty(); }

    // For ggml's eval callback: whether the tensor is wanted; and copies it and returns whether the pass goes on.
    bool wants(const ggml_tensor & tensor) const;
    bool take(const ggml_tensor & tensor);

    // Returns the hidden state of a token of the last pass, or nullptr if the graph has no such tensor. Some tensors
    // have a column for each token of the pass, others only for the tokens that want logits: `place` and `row` are the
    // token's indices among them.
    struct Batch {
        size_t n_tokens = 0, n_rows = 0;
    };
    const float * row(int32_t layer, Batch of, size_t place, size_t row) const;

private:
    int32_t layer_of(const ggml_tensor & tensor) const;  // -1: none

    const int32_t n_layers_;
    const size_t n_embd_;
    bool stops_ = false;
    std::map<int32_t, std::vector<float>> rows_;  // [n][n_embd]
};

}  // namespace eliza
