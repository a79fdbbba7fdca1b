#include "sampling/device_tensors.h"

#include <new>

namespace eliza {

bool device_supports(llama_sampler * sampler, ggml_backend_buffer_type_t where) {
    ggml_backend_dev_t device = ggml_backend_buft_get_device(where);
    if (device == nullptr) {
        return true;
    }
    constexpr size_t n_nodes = 64;
    constexpr int64_t n_vocab = 1 << 17;
    const ggml_init_params params{n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
                                  nullptr, /*no_alloc=*/true};
    const ggml_context_ptr context(ggml_init(params));
    if (context == nullptr) {
        throw std::bad_alloc();
    }
    ggml_cgraph * graph = ggml_new_graph_custom(context.get(), n_nodes, false);
    llama_sampler_data data{ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, n_vocab), nullptr, nullptr, nullptr};
    sampler->iface->backend_reset(sampler);
    sampler->iface->backend_apply(sampler, context.get(), graph, &data);
    sampler->iface->backend_reset(sampler);
    ggml_build_forward_expand(graph, data.logits);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        if (!ggml_backend_dev_supports_op(device, ggml_graph_node(graph, i))) {
            return false;
        }
    }
    return true;
}

}  // namespace eliza
