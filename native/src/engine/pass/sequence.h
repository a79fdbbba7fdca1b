// The tokens of one conversation and how far they are decoded.
//
// A token is appended for free. It is decoded when logits are asked for, in one pass with all the
// others that wait; what the slot's KV cache already holds is not decoded again. The logits after the last
// token belong to the sequence until its tokens change.
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
    // `cancelled` ends the pass that runs or is waited for. Throws Error where there is no such slot.
    Sequence(std::shared_ptr<Decoder> decoder, const SlotWish & slot, CancelFlag & cancelled);
    ~Sequence();
    Sequence(const Sequence &) = delete;
    Sequence & operator=(const Sequence &) = delete;

    // Is told of the passes that run this sequence's tokens, which then run alone, but for trees: of a text, those
    // from `begin` to `end`.
    using OnPass = std::function<void(const llama_token * text, size_t begin, size_t end)>;
    void set_on_pass(OnPass on_pass) { on_pass_ = std::move(on_pass); }

    Decoder & decoder() { return *decoder_; }
    const std::vector<llama_token> & tokens() const { return tokens_; }
    void append(const llama_token * tokens, size_t n);
    void append(llama_token token);
    void truncate(size_t n);

    // True when the last token's logits have to be computed before the next choice.
    bool has_undecoded() const { return !has_logits_ && !hidden_ && !gathered_; }

    // How many tokens wait to be decoded.
    size_t n_waiting() const {
        return !has_undecoded() ? 0 : tokens_.size() - std::min(n_decoded_, tokens_.size() - 1);
    }

    // Decodes what waits, for choices to come; which logits they need is not known yet, so it may stop before the
    // output head. The sequence must not be empty. Throws Error, here and below; the tokens are then unchanged, and
    // what was decoded until then is kept.
    void decode(Rows rows, const Progress & progress = {});

    // Decodes what waits and calls `choose` with the logits of all tokens after the last one, which are valid during
    // the call. If `choose` returns true, it has appended a token: that token is decoded in the next pass and `choose`
    // is called again. The thread that runs the passes calls `choose`, while the thread of this call sleeps: many
    // tokens can be generated without waking it and without copying logits.
    void decode_each(const std::function<bool(const float * logits)> & choose);

    // The logits after the last token, n_vocab of them, until the tokens change.
    const float * logits();

    // What decode() has left of that row: all logits, or those that are asked for.
    LogitsRow row();

    // Of that row what belongs to these tokens, picked out on the device if it has to be computed.
    LogitsRow gathered_row(TokenSpan tokens);

    // In one pass what waits to be decoded and, behind it, the tree; see PassRequest. on_row(place, row) gets each
    // wanted row, place -1 being that of the last token that waited; then kept() says with which place the cache
    // goes on. The logits after the last token, if they were known, stay so.
    void decode_tree(const TreeBatch & tree, Rows rows,
                     const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                     const std::function<int32_t()> & kept);

    // In one pass what waits to be decoded and, behind it, tokens that may follow. While what is appended
    // one by one is those tokens, the logits after them are known.
    void decode_ahead(const std::vector<llama_token> & ahead);

    // How many tokens were decoded ahead and not yet appended.
    size_t n_ahead() const { return ahead_ ? ahead_->tokens.size() - ahead_->n_appended : 0; }

    // True where the last token was decoded ahead.
    bool came_ahead() const { return ahead_ && ahead_->n_appended > 0; }

    // What the cache holds, in llama.cpp's own format; what waits is decoded first.
    std::vector<uint8_t> copy_state();

    // The tokens instead of what is here, their cache from copy_state(). Where the state does not fit, the tokens
    // are as they were.
    void restore_state(const std::vector<llama_token> & tokens, const std::vector<uint8_t> & state);

    // What the next passes will cost, by what was measured; see Decoder.
    std::optional<PassCost> pass_cost() { return decoder_->pass_cost(slot_, tokens_.size(), cancelled_); }

    // Calls `use` while no pass runs, so that it may use the context. Throws Error if it is cancelled before.
    void run_alone(const std::function<void()> & use) { decoder_->queue().run_alone(slot_, cancelled_, use); }

    // What all passes have cost so far.
    const PassCounts & counts() const { return counts_; }

    CancelFlag & cancelled() { return cancelled_; }

private:
    void ask_for_row(PassRequest & request);
    void run(PassRequest & request);
    void keep(const LogitsRow & row, TokenSpan gathered);
    void drop_ahead();
    void forget_row();
    void forget_outputs();

    std::shared_ptr<Decoder> decoder_;
    Slot & slot_;
    CancelFlag & cancelled_;
    PassCounts counts_;
    OnPass on_pass_;
    std::vector<llama_token> tokens_;
    size_t appended_from_ = 0;  // where the tokens appended last begin
    size_t n_decoded_ = 0;      // tokens_[0, n_decoded_) are known to be in the slot

    // After the last token: all logits, or the hidden state where the pass stopped before the head, or the logits
    // of some tokens where only these were copied.
    bool has_logits_ = false;
    std::vector<float> logits_;
    std::optional<HiddenState> hidden_;
    struct Gathered {
        std::vector<Token> tokens;
        std::vector<float> logits;
    };
    std::optional<Gathered> gathered_;

    struct Ahead {
        std::vector<llama_token> tokens;
        std::vector<std::vector<float>> rows;  // the logits after each
        size_t n_appended = 0;
    };
    std::optional<Ahead> ahead_;
};

}  // namespace eliza
