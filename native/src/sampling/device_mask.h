// The token trie's mask as part of the compute graph, so that masking runs on the device that holds the logits.
#pragma once

#include <cstdint>

#include "ggml.h"
#include "llama.h"
#include "token_trie/token_trie.h"

namespace eliza {

// One graph serves all decisions, so the shapes are fixed. The logits of `width` tokens are kept. All other logits get
// -infinity added, or 0 if the current decision masks nothing. With `winner_only`, only the largest logit is kept.
class DeviceMask {
public:
    // If `n_vocab` is 0 (unknown), the mask cannot be added to a graph.
    DeviceMask(int32_t n_vocab, uint32_t width, bool winner_only)
        : n_vocab_(n_vocab), width_(width), winner_only_(winner_only) {}

    // Copies the settings only, because the graph's tensors belong to the other object.
    DeviceMask(const DeviceMask & other) : DeviceMask(other.n_vocab_, other.width_, other.winner_only_) {}
    DeviceMask & operator=(const DeviceMask &) = delete;

    bool can_be_added() const { return n_vocab_ > 0; }

    // Adds the mask to a graph. Earlier samplers may have reduced the candidates already.
    void add(ggml_context * context, llama_sampler_data & data);

    // Uploads the allowed tokens of the next pass: 1 to `width` tokens, or none to mask nothing.
    void set(TokenSpan allowed);

    // Call this before another graph is built.
    void forget_graph() { left_out_ = tokens_ = kept_ = nullptr; }

private:
    int32_t n_vocab_;
    uint32_t width_;
    bool winner_only_;
    ggml_tensor * left_out_ = nullptr;  // [1], the number that is added to the logits of all other tokens
    ggml_tensor * tokens_ = nullptr;    // [width]
    ggml_tensor * kept_ = nullptr;      // [1, width], zeros
};

}  // namespace eliza
