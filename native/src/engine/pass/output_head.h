// The output head is the last matrix product of a forward pass: the hidden state times the output matrix gives n_vocab
// logits. A decision among k tokens needs only k rows of that matrix. With a large vocabulary and a small model, the
// other rows are most of the work. So a pass can stop before the output head, and the k products are computed here,
// with the same dot product as in ggml.
//
// This needs a graph that ends in exactly this product. Otherwise (logit scaling or soft-capping, LoRA on the output, a
// repacked matrix, a device other than the CPU), no pass is stopped and all logits are computed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "token_trie/token_trie.h"

namespace eliza {

// The result of a pass for one token, if the pass stops before the output head.
struct HiddenState {
    std::vector<float> values;    // [n_embd]
    std::vector<char> converted;  // the same values in the type that the dot product with the head's weights takes
};

class OutputHead {
public:
    // For ggml's eval callback: whether the head needs the tensor's values; and copies them, after which the pass
    // stops.
    bool wants(const ggml_tensor & tensor);
    void take(const ggml_tensor & tensor);

    // Returns whether an earlier pass has shown that the head is one plain matrix product. Safe from any thread.
    bool can_stop() const { return weights_ != nullptr && !has_given_up_; }

    // Sets whether the next pass stops before the head, which requires can_stop().
    void begin_pass(bool stop) {
        is_stopping_ = stop;
        rows_.clear();
    }

    // Returns the rows of the stopped pass. They are valid until the next begin_pass().
    const std::vector<HiddenState> & rows() const { return rows_; }

    // Makes can_stop() return false from now on. Called after a pass that did not stop as expected.
    void give_up() { has_given_up_ = true; }

    // Computes the logits of some tokens with ggml's dot product. Safe from any thread.
    void logits(const HiddenState & hidden, TokenSpan tokens, float * out) const;

    // Computes the logits of all tokens, for each of some hidden states, with ggml's matrix product.
    void all_logits(const std::vector<const HiddenState *> & hidden, int32_t n_threads, ggml_threadpool * pool,
                    const std::vector<std::vector<float> *> & out) const;

private:
    void look_at(const ggml_tensor & tensor);

    bool has_looked_ = false;
    std::atomic<const ggml_tensor *> weights_{nullptr};  // the output matrix, [n_embd, n_vocab]
    std::atomic<bool> has_given_up_{false};
    bool is_stopping_ = false;
    std::vector<HiddenState> rows_;
};

// How much of a row of logits is needed.
enum class Rows {
    whole,  // the logits of all tokens
    some    // the logits of some tokens: the pass may stop before the output head
};

// One row of logits, in one of two forms: all logits, or a hidden state and the output head that computes logits on
// request.
class LogitsRow {
public:
    explicit LogitsRow(const float * whole) : whole_(whole) {}
    LogitsRow(const OutputHead & head, const HiddenState & hidden) : head_(&head), hidden_(&hidden) {}

    // Returns all logits, or nullptr if the row has another form.
    const float * whole() const { return whole_; }

    // Returns the hidden state, or nullptr if the row has another form.
    const HiddenState * hidden() const { return hidden_; }

    // Writes the logits of some tokens to `out`.
    void gather(TokenSpan tokens, float * out) const {
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
    const OutputHead * head_ = nullptr;
    const HiddenState * hidden_ = nullptr;
};

}  // namespace eliza
