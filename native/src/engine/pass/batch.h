#pragma once

#include <cstdint>
#include <vector>

#include "llama.h"

namespace eliza {

// Tokens as llama.cpp wants them.
class Batch {
public:
    void add(llama_token token, llama_pos position, const std::vector<llama_seq_id> & sequences, bool want_logits) {
        tokens_.push_back(token);
        positions_.push_back(position);
        n_sequences_.push_back(static_cast<int32_t>(sequences.size()));
        sequences_.insert(sequences_.end(), sequences.begin(), sequences.end());
        want_logits_.push_back(want_logits);
    }

    // Valid until the next add().
    llama_batch get() {
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
        batch.logits = want_logits_.data();
        return batch;
    }

private:
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<int32_t> n_sequences_;
    std::vector<llama_seq_id> sequences_;
    std::vector<llama_seq_id *> sequence_pointers_;
    std::vector<int8_t> want_logits_;
};

}  // namespace eliza
