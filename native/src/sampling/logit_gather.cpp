#include "sampling/logit_gather.h"

#include <algorithm>
#include <new>

#include "sampling/device_tensors.h"

namespace eliza {

LogitGather & LogitGather::self(const llama_sampler * sampler) { return *static_cast<LogitGather *>(sampler->ctx); }

const llama_sampler_i & LogitGather::interface() {
    static const llama_sampler_i callbacks = [] {
        llama_sampler_i i{};
        i.name = [](const llama_sampler *) { return "logit-gather"; };
        i.apply = [](llama_sampler *, llama_token_data_array *) {};
        i.clone = [](const llama_sampler *) -> llama_sampler * { return nullptr; };
        i.free = [](llama_sampler *) {};
        i.backend_init = [](llama_sampler * sampler, ggml_backend_buffer_type_t where, uint32_t) {
            return self(sampler).is_supported_ = device_supports(sampler, where);
        };
        i.backend_apply = [](llama_sampler * sampler, ggml_context * context, ggml_cgraph *,
                             llama_sampler_data * data) {
            LogitGather & gather = self(sampler);
            if (gather.tokens_input_ == nullptr) {
                gather.tokens_input_ = new_graph_input(context, GGML_TYPE_I32, gather.width(), "gathered_tokens");
            }
            ggml_tensor * rows = ggml_reshape_2d(context, data->logits, 1, ggml_nelements(data->logits));
            rows = ggml_get_rows(context, rows, gather.tokens_input_);
            data->logits = ggml_reshape_1d(context, rows, gather.width());
        };
        i.backend_set_input = [](llama_sampler * sampler) {
            upload(self(sampler).tokens_input_, self(sampler).tokens_);
        };
        i.backend_reset = [](llama_sampler * sampler) { self(sampler).tokens_input_ = nullptr; };
        return i;
    }();
    return callbacks;
}

LogitGather::LogitGather(uint32_t width)
    : tokens_(width, 0), chain_(llama_sampler_chain_init(llama_sampler_chain_default_params())) {
    llama_sampler * sampler = llama_sampler_init(const_cast<llama_sampler_i *>(&interface()), this);
    if (chain_ == nullptr || sampler == nullptr) {
        throw std::bad_alloc();
    }
    llama_sampler_chain_add(chain_.get(), sampler);
}

void LogitGather::set_tokens(TokenSpan tokens) {
    const auto end = std::copy(tokens.begin(), tokens.end(), tokens_.begin());
    std::fill(end, tokens_.end(), tokens[0]);
}

}  // namespace eliza
