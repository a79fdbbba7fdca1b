// The tokens of one conversation and how far they are decoded.
//
// A token is appended for free. It is decoded when logits are asked for, in one pass with all the
// others that wait; what the slot's KV cache already holds is not decoded again.
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
    // What decoding cost, added to by logits().
    struct Cost {
        int64_t forward_passes = 0;
        int64_t tokens_reused = 0;  // of those appended last, found in the KV cache
        int64_t microseconds = 0;
        int64_t bytes_copied = 0;  // of logits and hidden states
    };

    Sequence(std::shared_ptr<Decoder> decoder, int32_t slot_id, const std::string & cache_key);
    ~Sequence();
    Sequence(const Sequence &) = delete;
    Sequence & operator=(const Sequence &) = delete;

    // Is told of the passes that run this sequence's tokens and no others: of a text, those from `begin` to
    // `end`.
    using OnPass = std::function<void(const llama_token * text, size_t begin, size_t end)>;
    void set_on_pass(OnPass on_pass) { on_pass_ = std::move(on_pass); }

    const std::vector<llama_token> & tokens() const { return tokens_; }
    void append(const llama_token * tokens, size_t n);
    void append(llama_token token);
    void truncate(size_t n);

    // True when the last token's logits have to be computed before the next choice.
    bool has_undecoded() const { return !has_logits_ && !hidden_ && !gathered_; }

    // Decodes what waits, for choices to come. Where that is known to do, it stops before the output
    // head: which logits will be needed is not known yet.
    void decode(Turn & turn, Cost & cost, bool may_stop_before_head, const Progress & progress);

    // The logits after the last token, n_vocab of them, valid while the turn lasts. The sequence must
    // not be empty. Throws Error; what was decoded until then is kept and the tokens are unchanged.
    const float * logits(Turn & turn, Cost & cost, const Progress & progress = {});

    // What decode() has left of that row: all logits, or those that are asked for.
    LogitsRow row(Turn & turn, Cost & cost);

    // Of that row what belongs to these tokens, picked out on the device if it has to be computed;
    // Decoder::can_gather() must hold.
    LogitsRow gathered_row(Turn & turn, Cost & cost, TokenSpan tokens);

    // In one pass what waits to be decoded and, behind it, the tree; see Decoder::decode_tree. The
    // logits after the last token, if they were known, stay so.
    void decode_tree(Turn & turn, Cost & cost, const TreeBatch & tree, bool whole,
                     const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                     const std::function<int32_t()> & kept);

    // In one pass what waits to be decoded and, behind it, tokens that may follow. While what is appended
    // one by one is those tokens, the logits after them are known.
    void decode_ahead(Turn & turn, Cost & cost, const std::vector<llama_token> & ahead);

    // How many tokens were decoded ahead and not yet appended.
    size_t n_ahead() const { return ahead_ ? ahead_->tokens.size() - ahead_->n_appended : 0; }

    // True where the last token was decoded ahead.
    bool came_ahead() const { return ahead_ && ahead_->n_appended > 0; }

    // What the cache holds, all of which must be decoded, in llama.cpp's own format.
    std::vector<uint8_t> copy_state(Turn & turn);

    // The tokens instead of what is here, their cache from copy_state(). Throws Error where the state does
    // not fit; the tokens are then as they were.
    void restore_state(Turn & turn, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & state);

    // How many tokens wait to be decoded.
    size_t n_waiting() const {
        return !has_undecoded() ? 0 : tokens_.size() - std::min(n_decoded_, tokens_.size() - 1);
    }

private:
    friend class Decoder;

    // Finds what the cache holds of the tokens; afterwards tokens_[n_decoded_ ...) wait.
    void match_cache(Cost & cost);
    void decode_until(Turn & turn, size_t end, bool want_logits, Cost & cost, const Progress & progress,
                      TokenSpan gather = {nullptr, 0});

    void drop_ahead();
    void forget_row();
    void forget_outputs();

    // Another sequence is about to overwrite our logits in the llama_context.
    void save_logits();

    std::shared_ptr<Decoder> decoder_;
    Slot & slot_;
    OnPass on_pass_;
    std::vector<llama_token> tokens_;
    size_t appended_from_ = 0;  // where the tokens appended last begin
    size_t n_decoded_ = 0;      // tokens_[0, n_decoded_) are known to be in slot_.cached
    bool has_logits_ = false;
    std::optional<HiddenState> hidden_;  // after the last token, where the pass stopped before the head
    struct Gathered {
        std::vector<Token> tokens;
        std::vector<float> logits;
    };
    std::optional<Gathered> gathered_;  // after the last token, where only these were copied
    std::vector<float> saved_logits_;
    struct Ahead {
        std::vector<llama_token> tokens;
        std::vector<std::vector<float>> rows;  // the logits after each
        size_t n_appended = 0;
    };
    std::optional<Ahead> ahead_;
};

}  // namespace eliza
