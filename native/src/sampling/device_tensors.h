// Helpers for samplers that run in the compute graph, on the device that holds the logits.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "llama.h"

namespace eliza {

inline ggml_tensor * new_graph_input(ggml_context * context, ggml_type type, int64_t n, const char * name) {
    ggml_tensor * tensor = ggml_new_tensor_1d(context, type, n);
    ggml_set_name(tensor, name);
    ggml_set_input(tensor);
    return tensor;
}

template <typename T>
void upload(ggml_tensor * tensor, const std::vector<T> & values) {
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(T));
}

// Returns true if the device supports all operations that the sampler adds to a graph. The CPU does.
bool device_supports(llama_sampler * sampler, ggml_backend_buffer_type_t where);

}  // namespace eliza
