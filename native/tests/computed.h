// The result of an operation of ggml on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"

// Computes a tensor of floats, each of which must be written.
inline std::vector<float> computed(ggml_context * context, ggml_tensor * result, int n_threads) {
    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, result);
    std::fill_n(static_cast<float *>(result->data), ggml_nelements(result), NAN);
    EXPECT_EQ(ggml_graph_compute_with_ctx(context, graph, n_threads), GGML_STATUS_SUCCESS);
    const auto * data = static_cast<const float *>(result->data);
    return {data, data + ggml_nelements(result)};
}
