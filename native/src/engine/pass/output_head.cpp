#include "engine/pass/output_head.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "engine/pass/layer_rows.h"
#include "error.h"
#include "ggml-backend.h"

namespace eliza {
namespace {

// llama.cpp's names of the hidden state after the last norm, and of the logits.
constexpr const char * hidden_name = "result_norm";
constexpr const char * logits_name = "result_output";

// Returns whether the rows are in the host's memory one after the other. A repacked matrix interleaves them.
bool is_readable(const ggml_tensor & weights) {
    if (weights.buffer == nullptr || !ggml_backend_buffer_is_host(weights.buffer)) {
        return false;
    }
    const char * kind = ggml_backend_buft_name(ggml_backend_buffer_get_type(weights.buffer));
    return std::strcmp(kind, "CPU") == 0 || std::strcmp(kind, "CPU_Mapped") == 0;
}

}  // namespace

bool OutputHead::wants(const ggml_tensor & tensor) {
    if (is_stopping_) {
        return std::strcmp(tensor.name, hidden_name) == 0;
    }
    if (!has_looked_ && std::strcmp(tensor.name, logits_name) == 0) {
        look_at(tensor);
    }
    return false;
}

void OutputHead::look_at(const ggml_tensor & tensor) {
    has_looked_ = true;
    if (tensor.op != GGML_OP_MUL_MAT || std::strcmp(tensor.src[1]->name, hidden_name) != 0) {
        return;
    }
    const ggml_tensor & weights = *tensor.src[0];
    const ggml_type_traits_cpu * traits = ggml_get_type_traits_cpu(weights.type);
    const bool is_plain = weights.op == GGML_OP_NONE && ggml_is_contiguous(&weights) && ggml_n_dims(&weights) == 2 &&
                          tensor.src[1]->type == GGML_TYPE_F32 && traits->vec_dot != nullptr;
    if (is_plain && is_readable(weights)) {
        weights_ = &weights;
    }
}

void OutputHead::take(const ggml_tensor & tensor) {
    const auto n_embd = static_cast<size_t>(tensor.ne[0]);
    const ggml_type type = ggml_get_type_traits_cpu(weights_.load()->type)->vec_dot_type;
    std::vector<float> values;
    append_rows(tensor, values);
    for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(n_embd)) {
        HiddenState & kept = rows_.emplace_back();
        kept.values.assign(row, row + static_cast<std::ptrdiff_t>(n_embd));
        kept.converted.resize(ggml_row_size(type, tensor.ne[0]));
        if (type == GGML_TYPE_F32) {
            std::memcpy(kept.converted.data(), kept.values.data(), kept.converted.size());
        } else {
            ggml_get_type_traits_cpu(type)->from_float(kept.values.data(), kept.converted.data(), tensor.ne[0]);
        }
    }
}

void OutputHead::logits(const HiddenState & hidden, TokenSpan tokens, float * out) const {
    const ggml_tensor & matrix = *weights_.load(std::memory_order_acquire);
    const ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(matrix.type)->vec_dot;
    const char * rows = static_cast<const char *>(matrix.data);
    for (uint32_t i = 0; i < tokens.size; ++i) {
        const char * weights = rows + static_cast<size_t>(tokens[i]) * matrix.nb[1];
        vec_dot(static_cast<int>(matrix.ne[0]), out + i, 0, weights, 0, hidden.converted.data(), 0, 1);
    }
}

void OutputHead::all_logits(const std::vector<const HiddenState *> & hidden, int32_t n_threads, ggml_threadpool * pool,
                            const std::vector<std::vector<float> *> & out) const {
    auto * const weights = const_cast<ggml_tensor *>(weights_.load());
    const auto n_rows = static_cast<int64_t>(hidden.size());
    const auto n_embd = static_cast<size_t>(weights->ne[0]), n_vocab = static_cast<size_t>(weights->ne[1]);
    std::vector<float> states, logits;
    for (const HiddenState * state : hidden) {
        states.insert(states.end(), state->values.begin(), state->values.begin() + static_cast<ptrdiff_t>(n_embd));
    }
    logits.resize(n_vocab * hidden.size());
    constexpr size_t max_nodes = 8;
    // The context holds only the descriptions of the tensors and the graph. The tensors use our own memory.
    const ggml_init_params params{4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false), nullptr,
                                  /*no_alloc=*/true};
    const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
    if (context == nullptr) {
        throw std::bad_alloc();
    }
    ggml_tensor * state = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, weights->ne[0], n_rows);
    state->data = states.data();
    ggml_tensor * product = ggml_mul_mat(context.get(), weights, state);
    product->data = logits.data();
    ggml_cgraph * graph = ggml_new_graph_custom(context.get(), max_nodes, false);
    ggml_build_forward_expand(graph, product);
    ggml_cplan plan = ggml_graph_plan(graph, n_threads, pool);
    std::vector<uint8_t> work(plan.work_size);
    plan.work_data = work.data();
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
        throw Error(ELIZA_ERR_FFI_FAULT, "ggml failed to compute the output head");
    }
    if (out.size() == 1) {
        *out[0] = std::move(logits);
        return;
    }
    for (size_t i = 0; i < out.size(); ++i) {
        const auto row = logits.begin() + static_cast<ptrdiff_t>(i * n_vocab);
        out[i]->assign(row, row + static_cast<ptrdiff_t>(n_vocab));
    }
}

}  // namespace eliza
