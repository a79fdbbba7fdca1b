#include "sampling/device_mask.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sampling/device_tensors.h"

namespace eliza {

void DeviceMask::add(ggml_context * context, llama_sampler_data & data) {
    if (left_out_ == nullptr) {
        left_out_ = new_graph_input(context, GGML_TYPE_F32, 1, "trie_left_out");
        tokens_ = new_graph_input(context, GGML_TYPE_I32, width_, "trie_tokens");
        kept_ = ggml_reshape_2d(context, new_graph_input(context, GGML_TYPE_F32, width_, "trie_kept"), 1, width_);
    }
    // Returns a column of n numbers: 0 in the rows to keep, and left_out_ in all others.
    const auto mask_of = [&](int64_t n, ggml_tensor * rows) {
        ggml_tensor * mask = ggml_repeat_4d(context, left_out_, 1, n, 1, 1);
        ggml_tensor * zeros = ggml_view_2d(context, kept_, 1, rows->ne[0], kept_->nb[1], 0);
        return ggml_set_rows(context, mask, zeros, rows);
    };
    const int64_t n = ggml_nelements(data.logits);
    // llama.cpp also tests the sampler with vocabularies of other sizes.
    ggml_tensor * mask = mask_of(data.candidates != nullptr ? n_vocab_ : n, tokens_);
    if (data.candidates != nullptr) {
        mask = ggml_get_rows(context, mask, ggml_reshape_1d(context, data.candidates, n));
    }
    ggml_tensor * logits = ggml_reshape_1d(context, data.logits, n);
    logits = ggml_add(context, logits, ggml_reshape_1d(context, mask, n));
    if (winner_only_) {
        mask = mask_of(n, ggml_argmax(context, logits));
        logits = ggml_add(context, logits, ggml_reshape_1d(context, mask, n));
    }
    data.logits = logits;
}

void DeviceMask::set(TokenSpan allowed) {
    std::vector<int32_t> tokens(width_, allowed.empty() ? 0 : allowed[0]);
    std::copy(allowed.begin(), allowed.end(), tokens.begin());
    upload(tokens_, tokens);
    upload(kept_, std::vector<float>(width_, 0.0f));
    upload(left_out_, std::vector<float>(1, allowed.empty() ? 0.0f : -INFINITY));
}

}  // namespace eliza
