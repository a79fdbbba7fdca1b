// Means of hidden states over ranges of tokens, in several layers (engine/pass/layer_rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/model.h"

namespace eliza {

class StateMeans {
public:
    struct Range {
        size_t begin, end;
    };

    // The ranges are of `n` tokens. Writes the means to out[layer][range][n_embd], which has room for `cap` values.
    // Throws Error if the layers are not ascending, or a range is empty or ends behind the tokens.
    StateMeans(const Model & model, std::vector<int32_t> layers, std::vector<Range> ranges, size_t n, float * out,
               size_t cap);

    const std::vector<int32_t> & layers() const { return layers_; }

    // The first token of all ranges.
    size_t first() const { return first_; }

    // Adds the hidden state of a token.
    void add(size_t token, int32_t layer, const float * values);

    void write() const;

private:
    const std::vector<int32_t> layers_;
    const std::vector<Range> ranges_;
    size_t first_;
    const size_t n_embd_;
    float * const out_;
    std::vector<double> sums_;
};

}  // namespace eliza
