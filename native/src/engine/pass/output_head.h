// The last matrix product of a pass: hidden state times output matrix gives n_vocab logits. A decision
// among k tokens needs k rows of that matrix, and with a large vocabulary and a small model the other
// rows are most of the work. So a pass can be stopped before it, and the k products done here, with the
// dot product that ggml would have used.
//
// Where the graph is not known to be just that (logit scaling or soft-capping, LoRA on the output, a
// repacked matrix, a device other than the CPU), nothing is stopped and all logits are computed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "token_trie/token_trie.h"

namespace eliza {

// What a pass has computed for one token when it stops before the head.
struct HiddenState {
    std::vector<float> values;    // [n_embd]
    std::vector<char> converted;  // the same in the type that the head's weights are multiplied with
};

class OutputHead {
public:
    // The scheduler's eval callback; `head` is the OutputHead of the context.
    static bool on_tensor(ggml_tensor * tensor, bool ask, void * head);

    // True once a pass has shown that the head is one plain product. Safe from any thread.
    bool can_stop() const { return weights_ != nullptr && !has_given_up_; }

    // The pass to come is to stop before the head, or not. Asked for only where can_stop().
    void begin_pass(bool stop) {
        is_stopping_ = stop;
        rows_.clear();
    }

    // What the pass has left when it was stopped, row by row, until the next one begins.
    const std::vector<HiddenState> & rows() const { return rows_; }

    // No pass is to stop any more: one did not, for whatever reason.
    void give_up() { has_given_up_ = true; }

    // The logits of some tokens, by ggml's dot product. Safe from any thread.
    void logits(const HiddenState & hidden, TokenSpan tokens, float * out) const;

    // The logits of all tokens behind each of some hidden states, by ggml's matrix product.
    void all_logits(const std::vector<const HiddenState *> & hidden, int32_t n_threads, ggml_threadpool * pool,
                    const std::vector<std::vector<float> *> & out) const;

private:
    void look_at(const ggml_tensor & tensor);
    void keep_rows(const ggml_tensor & tensor);

    bool has_looked_ = false;
    std::atomic<const ggml_tensor *> weights_{nullptr};  // of the model, [n_embd, n_vocab]
    std::atomic<bool> has_given_up_{false};
    bool is_stopping_ = false;
    std::vector<HiddenState> rows_;
};

// One row of logits: all of it, those of some tokens, or what is asked for out of a hidden state.
class LogitsRow {
public:
    explicit LogitsRow(const float * whole) : whole_(whole) {}
    // Of those tokens that are asked for, in their order.
    static LogitsRow of_tokens(const float * gathered) {
        LogitsRow row(nullptr);
        row.gathered_ = gathered;
        return row;
    }
    LogitsRow(const OutputHead & head, const HiddenState & hidden) : head_(&head), hidden_(&hidden) {}

    // All logits, or nullptr where only some can be asked for.
    const float * whole() const { return whole_; }

    // What those some come from: the hidden state, or the logits that were picked out; or else nullptr.
    const HiddenState * hidden() const { return hidden_; }
    const float * gathered() const { return gathered_; }

    void gather(TokenSpan tokens, float * out) const {
        if (gathered_ != nullptr) {
            std::copy(gathered_, gathered_ + tokens.size, out);
            return;
        }
        if (whole_ == nullptr) {
            head_->logits(*hidden_, tokens, out);
            return;
        }
        for (uint32_t i = 0; i < tokens.size; ++i) {
            out[i] = whole_[tokens[i]];
        }
    }

private:
    const float * whole_ = nullptr;
    const float * gathered_ = nullptr;
    const OutputHead * head_ = nullptr;
    const HiddenState * hidden_ = nullptr;
};

}  // namespace eliza
