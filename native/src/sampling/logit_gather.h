// Picks the logits of a few tokens on the device that computed all of them, so that only these are copied to the host.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml.h"
#include "llama-cpp.h"
#include "token_trie/token_trie.h"

namespace eliza {

// A sampler of llama.cpp's backend interface, to be attached to a sequence with llama_set_sampler(). The number of
// tokens it picks is fixed, so that one graph serves all decisions; the tokens themselves can change.
class LogitGather {
public:
    static constexpr uint32_t least_width = 64;
    static constexpr uint32_t most_width = 1024;

    // Picks `width` tokens.
    explicit LogitGather(uint32_t width);
    LogitGather(const LogitGather &) = delete;
    LogitGather & operator=(const LogitGather &) = delete;

    uint32_t width() const { return static_cast<uint32_t>(tokens_.size()); }

    // Sets the tokens for the following passes, 1 to width() of them. llama_get_sampled_logits_ith() then returns their
    // logits first.
    void set_tokens(TokenSpan tokens);

    // Returns the sampler chain to attach. This object must outlive it.
    llama_sampler * chain() const { return chain_.get(); }

    // After attaching: true if the device supports it.
    bool is_supported() const { return is_supported_; }

private:
    static LogitGather & self(const llama_sampler * sampler);
    static const llama_sampler_i & interface();

    std::vector<int32_t> tokens_;
    bool is_supported_ = false;
    ggml_tensor * tokens_input_ = nullptr;  // the current graph's input
    llama_sampler_ptr chain_;
};

}  // namespace eliza
