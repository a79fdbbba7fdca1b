// What a stream needs of the model: one request type for every need.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/cache/slots.h"
#include "engine/pass/cancel_flag.h"
#include "engine/pass/output_head.h"
#include "engine/pass/tree_batch.h"

namespace eliza {

// What requests have cost, added up.
struct PassCounts {
    int64_t passes = 0;         // forward passes
    int64_t passes_shared = 0;  // of those, with tokens of others
    int64_t sequences = 0;      // over all passes, the sequences whose tokens were in them
    int64_t tokens_reused = 0;  // of what was appended last, found in the KV cache
    int64_t pass_us = 0;        // microseconds of those passes
    int64_t wait_us = 0;        // and of waiting for them
    int64_t bytes_copied = 0;   // of logits and hidden states
};

// How much of a row of logits will be needed.
enum class Rows {
    whole,  // all of it
    some    // only some tokens' logits: the pass may stop before the output head
};

// Has a slot hold a text, with a tree of tokens behind it if there is one, and tells the rows that are wanted.
// It takes one pass, or more where a text is longer than a batch; the last n_rows tokens go with the tree.
struct PassRequest {
    PassRequest(Slot & in_slot, CancelFlag & cancelled_flag, PassCounts & counted)
        : slot(in_slot), cancelled(cancelled_flag), counts(counted) {}

    Slot & slot;
    CancelFlag & cancelled;  // set from any thread; cleared where it ends the request
    PassCounts & counts;     // what it costs is added to

    const llama_token * text = nullptr;
    size_t n_text = 0;
    size_t n_known = 0;        // tokens that the slot is known to hold, if it holds so many
    size_t appended_from = 0;  // where those appended last begin
    size_t n_rows = 0;         // logits are wanted after so many of the last tokens

    const TreeBatch * tree = nullptr;

    Rows rows = Rows::whole;
    TokenSpan gather{nullptr, 0};  // with Rows::some: only these, where the device can pick them out

    // No tokens of others may be in its passes.
    bool alone = false;

    // Told of each row that is wanted, in the order of the batch, while it is at hand: `place` is that of the
    // tree's node, or -n_rows to -1 for the text's last tokens. This, like the next two, is called while all
    // others wait, by whichever thread runs the pass.
    std::function<void(int32_t place, const LogitsRow & row)> on_row;

    // Afterwards: the place in the tree that the slot goes on with, -1 for none.
    std::function<int32_t()> kept;

    // After each pass, which has decoded the text from `begin` to `end`.
    std::function<void(size_t begin, size_t end)> on_pass;

    // On the thread that asked: how far the text is decoded, from 0 to 1.
    std::function<void(float fraction)> progress;

    // Instead of all that: all logits of a state that a pass has left.
    const HiddenState * hidden = nullptr;
    std::vector<float> * logits = nullptr;
};

}  // namespace eliza
