// The tokens of one conversation and how far they are decoded.
//
// A token is appended for free. It is decoded when logits are asked for, in one pass with all the
// others that wait; what the slot's KV cache already holds is not decoded again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/decoder.h"

namespace eliza {

class Sequence {
public:
    // What decoding cost, added to by logits().
    struct Cost {
        int64_t forward_passes = 0;
        int64_t tokens_reused = 0;  // found in the KV cache
        int64_t microseconds = 0;
    };

    Sequence(std::shared_ptr<Decoder> decoder, int32_t slot_id, const std::string & cache_key);
    ~Sequence();
    Sequence(const Sequence &) = delete;
    Sequence & operator=(const Sequence &) = delete;

    const std::vector<llama_token> & tokens() const { return tokens_; }
    void append(const llama_token * tokens, size_t n);
    void append(llama_token token) { append(&token, 1); }
    void truncate(size_t n);

    // True when the last token's logits have to be computed before the next choice.
    bool has_undecoded() const { return !has_logits_; }

    // The logits after the last token, n_vocab of them, valid while the turn lasts. The sequence must
    // not be empty. Throws Error; what was decoded until then is kept and the tokens are unchanged.
    const float * logits(const Decoder::Turn & turn, Cost & cost, const Progress & progress = {});

private:
    friend class Decoder;

    void decode_waiting(Cost & cost, const Progress & progress);

    // Another sequence is about to overwrite our logits in the llama_context.
    void save_logits();

    std::shared_ptr<Decoder> decoder_;
    Slot & slot_;
    std::vector<llama_token> tokens_;
    size_t n_decoded_ = 0;  // tokens_[0, n_decoded_) are known to be in slot_.cached
    bool has_logits_ = false;
    std::vector<float> saved_logits_;
};

}  // namespace eliza
