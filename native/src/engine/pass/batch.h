#pragma once

#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

// llama.cpp rounds the context length up to a multiple of this. No context has more sequences than this.
constexpr uint32_t n_ctx_step = 256;
constexpr uint32_t rounded_n_ctx(uint32_t n) { return (n + n_ctx_step - 1) / n_ctx_step * n_ctx_step; }

// The tokens of one forward pass, in the format of llama.cpp.
class Batch {
public:
    void add(llama_token token, llama_pos position, const std::vector<llama_seq_id> & sequences, bool want_logits) {
        tokens_.push_back(token);
        positions_.push_back(position);
        n_sequences_.push_back(static_cast<int32_t>(sequences.size()));
        sequences_.insert(sequences_.end(), sequences.begin(), sequences.end());
        want_logits_.push_back(want_logits);
        n_rows_ += want_logits ? 1 : 0;
    }

    int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
    size_t n_rows() const { return n_rows_; }  // number of tokens that want logits

    // Returns a batch that is valid until the next add(). With `all_rows`, the logits of every token are computed.
    llama_batch get(bool all_rows = false) {
        sequence_pointers_.clear();
        llama_seq_id * next = sequences_.data();
        for (const int32_t n : n_sequences_) {
            sequence_pointers_.push_back(next);
            next += n;
        }
        llama_batch batch{};
        batch.n_tokens = static_cast<int32_t>(tokens_.size());
        batch.token = tokens_.data();
        batch.pos = positions_.data();
        batch.n_seq_id = n_sequences_.data();
        batch.seq_id = sequence_pointers_.data();
        all_.assign(all_rows ? tokens_.size() : 0, 1);
        batch.logits = all_rows ? all_.data() : want_logits_.data();
        return batch;
    }

private:
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<int32_t> n_sequences_;
    std::vector<llama_seq_id> sequences_;
    std::vector<llama_seq_id *> sequence_pointers_;
    std::vector<int8_t> want_logits_, all_;
    size_t n_rows_ = 0;
};

}  // namespace eliza
