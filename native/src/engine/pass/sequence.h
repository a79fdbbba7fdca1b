// The tokens of one conversation, and which of them are decoded.
//
// Appending a token costs nothing. When logits are needed, all undecoded tokens are decoded in one pass, except the
// tokens that the slot's KV cache already holds. The sequence keeps the logits after its last token until its tokens
// change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/pass/decoder.h"

namespace eliza {

class Sequence {
public:
    // Setting `cancelled` ends the running or waiting pass. Throws Error if the slot does not exist.
    Sequence(std::shared_ptr<Decoder> decoder, const SlotWish & slot, CancelFlag & cancelled);
    ~Sequence();
    Sequence(const Sequence &) = delete;
    Sequence & operator=(const Sequence &) = delete;

    // Called after each pass that has decoded the tokens of `text` from `begin` to `end`. While a callback is set, this
    // sequence's tokens share no pass with other sequences. Passes with a tree are an exception: they may be shared,
    // and the callback is not called for them.
    using OnPass = std::function<void(const llama_token * text, size_t begin, size_t end)>;
    void set_on_pass(OnPass on_pass) { on_pass_ = std::move(on_pass); }

    Decoder & decoder() { return *decoder_; }
    Slot & slot() { return slot_; }
    const std::vector<llama_token> & tokens() const { return tokens_; }
    void append(const llama_token * tokens, size_t n);
    void append(llama_token token);
    void truncate(size_t n);

    // Appends tokens of a prompt: the passes of the request that decodes them count as those of a prompt.
    void append_prompt(const llama_token * tokens, size_t n);

    // True if the logits after the last token have not been computed.
    bool has_undecoded() const { return !has_logits_ && !hidden_; }

    // The number of undecoded tokens.
    size_t n_waiting() const {
        return !has_undecoded() ? 0 : tokens_.size() - std::min(n_decoded_, tokens_.size() - 1);
    }

    // Decodes all undecoded tokens. With Rows::some the pass may stop before the output head, so that a later choice
    // computes only the logits that it needs. The sequence must not be empty. This function and all later ones may
    // throw an Error. After an error the tokens are unchanged, and tokens that were already decoded stay decoded.
    void decode(Rows rows, const Progress & progress = {});

    // Decodes the last n tokens in one pass, even if the cache holds them, and calls `on_row` with the row after each
    // of them: with 0 for the first. n is at most Decoder::most_rows().
    void decode_rows(size_t n, const std::function<void(size_t i, const LogitsRow & row)> & on_row);

    // Calls `on_state` with the hidden states of these tokens from index `from` on, in some layers
    // (engine/pass/layer_rows.h). The layers are ascending. The sequence must be empty and stays so, and the cache
    // keeps the first n_kept tokens. n_kept is at most `from`.
    using OnState = std::function<void(size_t i, int32_t layer, const float * values)>;
    void read_states(const llama_token * tokens, size_t n, size_t n_kept, size_t from,
                     const std::vector<int32_t> & layers, const OnState & on_state);

    // Asks for hidden states of this sequence's tokens from index `from` on, as long as the object exists: the passes
    // that decode these tokens also call `on_state`, once for each token. Tokens that are decoded already are decoded
    // again.
    class States {
    public:
        States(Sequence & sequence, size_t from, const std::vector<int32_t> & layers, OnState on_state);
        ~States() { sequence_.states_ = nullptr; }
        // Decodes the tokens whose states no pass has reported.
        void complete() {
            if (from_ < end_) {
                sequence_.decode(Rows::some);
            }
        }
        States(const States &) = delete;
        States & operator=(const States &) = delete;

    private:
        friend class Sequence;
        Sequence & sequence_;
        const std::vector<int32_t> layers_;
        const OnState on_state_;
        const size_t end_;  // the number of the sequence's tokens
        size_t from_;       // the first token whose states have not been reported
    };

    // Decodes all undecoded tokens and calls `choose` with the logits after the last token, which are valid during the
    // call. If `choose` returns true, it has appended a token; that token is decoded in the next pass and `choose` is
    // called again. The thread that runs the passes calls `choose`, while the calling thread sleeps. This generates
    // several tokens without waking a thread and without copying logits. No function may be set with set_on_pass().
    void decode_each(const std::function<bool(const float * logits)> & choose);

    // Returns the logits after the last token, one for each token of the vocabulary. Valid until the tokens change.
    const float * logits();

    // Returns the row that decode() has left: all logits, or a hidden state from which logits are computed.
    LogitsRow row();

    // Returns the row of a choice among a few tokens, computed in the cheapest way that the options allow.
    LogitsRow row_of_few(const Options & options);

    // Decodes all undecoded tokens and, after them, the tree in one pass; see PassRequest for on_row and kept. With
    // `wants_last`, on_row also gets the row after the last token, which must be undecoded. Logits after the last token
    // that were already computed stay valid.
    void decode_tree(const TreeBatch & tree, Rows rows, bool wants_last,
                     const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                     const std::function<int32_t()> & kept);

    // Decodes all undecoded tokens and, in the same pass, tokens that may follow. As long as exactly those tokens are
    // appended next, the logits after them are known.
    void decode_ahead(const std::vector<llama_token> & ahead);

    // The number of tokens that were decoded ahead and have not been appended.
    size_t n_ahead() const { return ahead_ ? ahead_->tokens.size() - ahead_->n_appended : 0; }

    // True if the last token was decoded ahead.
    bool came_ahead() const { return ahead_ && ahead_->n_appended > 0; }

    // Returns the cached keys and values in llama.cpp's format. Decodes all undecoded tokens first.
    std::vector<uint8_t> copy_state();

    // Replaces the sequence by these tokens and their state from copy_state(). If the state does not fit, the tokens
    // are unchanged.
    void restore_state(std::vector<llama_token> tokens, const std::vector<uint8_t> & state);

    // Returns the current cost of a pass; see Decoder.
    PassCost pass_cost() const { return decoder_->pass_cost(tokens_.size()); }

    // Calls `use` while no pass runs, so that it may use the context. Throws Error if the stream is cancelled before
    // `use` is called.
    void run_alone(const std::function<void()> & use) { decoder_->queue().run_alone(slot_, cancelled_, use); }

    // The costs of all passes so far, and what the owner counts.
    StreamCounts & counts() { return counts_; }
    const StreamCounts & counts() const { return counts_; }

    // Counts a token that has no alternative. The reference strategy computes its logits nevertheless.
    void settle_forced(const Options & options);

    // Counts a token that needs no logits, because it has no alternative.
    void count_forced() {
        ++counts_.tokens_forced;
        counts_.forward_passes_saved += has_undecoded() ? 1 : 0;
    }

    CancelFlag & cancelled() { return cancelled_; }

private:
    void ask_for_row(PassRequest & request);
    void ask_for_states(PassRequest & request, size_t from, const std::vector<int32_t> & layers) const;
    void run_with_ahead(size_t n, const std::function<void()> & run_request);
    void run(PassRequest & request);
    void keep(const LogitsRow & row);
    void drop_ahead();
    void forget_row();
    void forget_outputs();

    std::shared_ptr<Decoder> decoder_;
    Slot & slot_;
    CancelFlag & cancelled_;
    StreamCounts counts_{};
    bool reads_prompt_ = false;  // the next request decodes tokens of a prompt
    OnPass on_pass_;
    std::vector<llama_token> tokens_;
    size_t appended_from_ = 0;  // index of the first token of the latest append()
    size_t n_decoded_ = 0;      // tokens_[0, n_decoded_) are known to be in the slot

    // After the last token: all logits, or the hidden state if the pass stopped before the head.
    bool has_logits_ = false;
    std::vector<float> logits_;
    std::optional<HiddenState> hidden_;

    States * states_ = nullptr;

    struct Ahead {
        std::vector<llama_token> tokens;
        std::vector<std::vector<float>> rows;  // the logits after each
        size_t n_appended = 0;
    };
    std::optional<Ahead> ahead_;
};

}  // namespace eliza
