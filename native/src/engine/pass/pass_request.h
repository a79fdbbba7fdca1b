// A request to the model, and its state while it waits in the queue and goes through forward passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "cancel_flag.h"
#include "eliza/eliza_inference.h"
#include "engine/cache/kv_cache.h"
#include "engine/pass/output_head.h"
#include "engine/pass/tree_batch.h"

namespace eliza {

// The costs of the requests of a stream or a decision, and counts of its own tokens.
using StreamCounts = eliza_llm_stream_stats_t;

struct PassRequest {
    enum class Kind {
        text,    // decode a text into the slot, and a tree of tokens after it if there is one; report rows of logits
        logits,  // compute all logits of a hidden state that a pass has left
        alone    // use the context while no pass runs
    };

    PassRequest(Slot & in_slot, CancelFlag & cancel_flag, StreamCounts & added_to)
        : slot(in_slot), cancelled(cancel_flag), counts(added_to) {}
    PassRequest(const PassRequest &) = delete;
    PassRequest & operator=(const PassRequest &) = delete;

    // ---- The request, filled in by the caller ---------------------------------------------------

    Kind kind = Kind::text;
    Slot & slot;
    CancelFlag & cancelled;  // set from any thread; cleared when it ends the request
    StreamCounts & counts;   // the request's costs are added here

    // The text takes one pass, or several if it is longer than a batch. Its last n_rows tokens, after each of which
    // logits are wanted, go into one pass together with the tree.
    const llama_token * text = nullptr;
    size_t n_text = 0;
    size_t n_known = 0;        // the slot has held the text's first n_known tokens; it may have lost some since then
    size_t appended_from = 0;  // index of the first token of the latest append
    size_t n_rows = 0;
    const TreeBatch * tree = nullptr;
    Rows rows = Rows::whole;
    bool may_share = true;      // false: the passes must not contain tokens of other requests
    bool reads_prompt = false;  // its passes, and the appended tokens that the cache held, count as those of a prompt

    // Hidden states of these layers are wanted for the text's tokens from index states_from on. Each pass that reports
    // some of them increases states_from. If no rows are wanted, the last pass may stop after the deepest layer; the
    // slot then loses the tokens of that pass.
    std::vector<int32_t> layers;
    size_t states_from = 0;
    size_t n_complete = 0;             // the number of first tokens that no pass that stops early may contain
    bool wants_output_states = false;  // one of the layers is the output of the final norm, which has rows only
    std::function<void(size_t at, int32_t layer, const float * values)> on_state;

    // on_state and the next four are called by the thread that runs the pass, while all other requests wait.

    // Called with each wanted row, in the order of the batch, while the row is in llama.cpp's buffer. `place` is the
    // index of a node in the tree. The text's last n_rows tokens have the places -n_rows to -1.
    std::function<void(int32_t place, const LogitsRow & row)> on_row;

    // Called after all rows of a tree: returns the index of a node, or -1. The slot keeps the tree's tokens up to this
    // node, or none of them.
    std::function<int32_t()> kept;

    // Called after all rows: returns true if the request continues with a longer text, which the function has filled
    // in. So a request can generate many tokens without waking its caller.
    std::function<bool()> continues;

    // Called after each pass that has decoded the text from `begin` to `end`.
    std::function<void(size_t begin, size_t end)> on_pass;

    // Called on the caller's thread: the decoded share of the text, from 0 to 1.
    std::function<void(float fraction)> progress;

    // For Kind::logits.
    const HiddenState * hidden = nullptr;
    std::vector<float> * logits = nullptr;

    // ---- The result -----------------------------------------------------------------------------

    std::exception_ptr error;

    // ---- State of PassScheduler, used by the thread that runs passes ----------------------------

    bool is_prepared = false;
    bool is_suspended = false;    // its tokens have left the full cache, and it waits until there is room
    size_t n_refused = SIZE_MAX;  // the tokens that other streams held when it had no room, even alone in a pass
    size_t n_reached = 0;         // the most tokens that its slot has held; those that it lost do not count again
    size_t n_matched = 0;         // tokens that the cache held when the request was prepared
    size_t n_to_decode = 0;       // tokens that it did not hold

    // The request's part of the current pass.
    struct Part {
        enum class Outcome {
            waits,   // nothing of the request was decoded
            served,  // some tokens were decoded; the request needs another pass
            done     // the request has ended, possibly with an error
        };
        Outcome outcome = Outcome::waits;
        size_t begin = 0, n = 0;  // tokens of the text
        bool is_last = false;     // the rows and the tree belong to this pass
        int32_t first_in_batch = 0;
        size_t first_row = 0, n_text_rows = 0;  // rows of the text, which come before those of the tree
        std::unique_ptr<KvCache::Fork> fork{};
    };
    Part part;

    // The first tokens that the cache may hold. The others are decoded, because their logits or states are wanted.
    size_t n_cacheable() const { return std::min(layers.empty() ? n_text : states_from, n_text - n_rows); }

    // Whether a pass may stop after the deepest layer.
    bool may_stop() const { return !layers.empty() && n_all_rows() == 0 && !wants_output_states; }

    // The number of rows that the tokens from `begin` to `end` have. `is_last`: they end the text.
    size_t n_rows_of(size_t begin, size_t end, bool is_last) const {
        const size_t n_states = wants_output_states ? end - std::min(end, std::max(begin, states_from)) : 0;
        return is_last ? std::max(n_states, n_rows) + n_all_rows() - n_rows : n_states;
    }

    size_t n_left() const { return is_prepared ? n_text - slot.cached.size() : 0; }
    size_t n_nodes() const { return tree != nullptr ? tree->nodes.size() : 0; }
    size_t n_all_rows() const { return n_rows + static_cast<size_t>(tree != nullptr ? tree->n_rows : 0); }
    size_t n_in_pass() const { return part.n + (part.is_last ? n_nodes() : 0); }
    void fail(std::exception_ptr reason) {
        error = std::move(reason);
        part.outcome = Part::Outcome::done;
    }

    // ---- State of PassQueue, guarded by its mutex -----------------------------------------------

    std::list<PassRequest *>::iterator in_queue;
    bool is_held = false;  // by the thread that runs the pass
    bool is_done = false;
    bool is_in_callback = false;  // its thread runs `progress`, and looks at the queue afterwards
    int64_t served_us = 0;        // microseconds of the passes it was part of
    float fraction = 0.0f;        // decoded share of the text
    float fraction_told = 0.0f;
    std::exception_ptr callback_error;  // thrown by `progress`
};

}  // namespace eliza
