// The token trie's mask in the compute graph: what the sampler does on the host, on the device where the
// logits are.
#pragma once

#include <cstdint>

#include "ggml.h"
#include "llama.h"
#include "token_trie/token_trie.h"

namespace eliza {

// One graph serves all decisions, so the shapes are fixed: -infinity or 0 is added to all logits, and 0
// to those of `width` tokens instead. With `winner_only` what is left besides the winner goes as well.
class DeviceMask {
public:
    // `n_vocab` is 0 where it is not known; then no graph can have the mask.
    DeviceMask(int32_t n_vocab, uint32_t width, bool winner_only)
        : n_vocab_(n_vocab), width_(width), winner_only_(winner_only) {}

    // Of another sampler: the graph's tensors belong to that one.
    DeviceMask(const DeviceMask & other) : DeviceMask(other.n_vocab_, other.width_, other.winner_only_) {}
    DeviceMask & operator=(const DeviceMask &) = delete;

    bool can_be_added() const { return n_vocab_ > 0; }

    // Adds the mask to a graph, in which samplers may have shrunk the candidates already.
    void add(ggml_context * context, llama_sampler_data & data);

    // Uploads what the next pass allows: 1 to `width` tokens, or none where nothing is masked.
    void set(TokenSpan allowed);

    // Before another graph is built.
    void forget_graph() { left_out_ = tokens_ = kept_ = nullptr; }

private:
    int32_t n_vocab_;
    uint32_t width_;
    bool winner_only_;
    ggml_tensor * left_out_ = nullptr;  // [1], what is added to the logits of other tokens
    ggml_tensor * tokens_ = nullptr;    // [width]
    ggml_tensor * kept_ = nullptr;      // [1, width], zeros
};

}  // namespace eliza
