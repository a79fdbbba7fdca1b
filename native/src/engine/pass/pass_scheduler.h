// Schedules requests into forward passes: which go together, with which tokens, and what each gets of a pass.
//
// Used by one thread at a time: whoever leads (engine/pass/pass_queue.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/pass/pass_request.h"
#include "engine/pass/pass_runner.h"
#include "error.h"

namespace eliza {

class PassScheduler {
public:
    // A pass has room for max_rows rows of logits, or those of one request. How a prompt is cut into passes goes by the
    // time that earlier ones took, or by nothing but n_batch.
    PassScheduler(PassRunner & runner, KvCache & cache, int32_t max_rows, bool goes_by_time)
        : runner_(runner), cache_(cache), max_rows_(max_rows), goes_by_time_(goes_by_time) {}
    PassScheduler(const PassScheduler &) = delete;
    PassScheduler & operator=(const PassScheduler &) = delete;

    // A request on its way through one pass or more.
    struct Ticket {
        explicit Ticket(PassRequest & wanted) : request(wanted) {}

        PassRequest & request;
        std::exception_ptr error;

        bool is_prepared = false;
        size_t n_matched = 0;    // tokens that the cache held when it was
        size_t n_to_decode = 0;  // and those that it did not

        // Asks for the output head of a hidden state alone.
        bool is_head() const { return request.hidden != nullptr; }

        // Tokens of its text that are to be decoded still, once it is prepared.
        size_t n_left() const { return is_prepared ? request.n_text - request.slot.cached.size() : 0; }
        size_t n_nodes() const { return request.tree != nullptr ? request.tree->nodes.size() : 0; }
        size_t n_rows() const {
            return request.n_rows + static_cast<size_t>(request.tree != nullptr ? request.tree->n_rows : 0);
        }
        // How far the text is decoded, from 0 to 1.
        float fraction() const { return 1.0f - static_cast<float>(n_left()) / static_cast<float>(n_to_decode); }
    };

    // Its part of the pass.
    struct Member {
        Ticket * ticket;
        size_t begin = 0, n = 0;  // tokens of its text
        bool is_last = false;     // its rows and its tree belong to this pass

        // What became of it: nothing, and it goes into another pass; some of its tokens were decoded; or it is done,
        // perhaps with an error.
        enum class Outcome { waits, served, done } outcome = Outcome::waits;

        // Of the batch once it is put together.
        int32_t first_in_batch = 0;
        size_t first_row = 0;  // among all of the batch
        std::unique_ptr<KvCache::Fork> fork{};

        size_t n_tokens() const { return n + (is_last ? ticket->n_nodes() : 0); }
        void fail(std::exception_ptr error) {
            ticket->error = std::move(error);
            outcome = Outcome::done;
        }
    };

    // Who goes into the next pass, of those who wait, in their order.
    std::vector<Member> select(const std::vector<Ticket *> & waiting);

    // Runs it. What goes wrong is told by the outcomes.
    void run(std::vector<Member> & members);

    // How many passes there were, how many sequences in all of them, and how many in one of late. Safe from any
    // thread.
    int64_t n_passes() const { return n_passes_.load(std::memory_order_relaxed); }
    int64_t n_sequences() const { return n_sequences_.load(std::memory_order_relaxed); }
    double sequences_a_pass() const { return sequences_a_pass_.load(std::memory_order_relaxed); }

private:
    void prepare(Ticket & ticket);
    bool is_better_held_back(const Ticket & ticket, const std::vector<Member> & members) const;
    size_t room(const std::vector<Ticket *> & waiting) const;
    void learn_piece(size_t n_tokens, double microseconds);
    void compute_heads(std::vector<Member> & members);
    void decode(std::vector<Member> & members);
    void put_into(Batch & batch, Member & member);
    PassRunner::Wanted wanted_by(const std::vector<Member *> & members) const;
    void hand_out(Member & member, size_t n_members, int64_t microseconds);
    void take_back(Member & member, bool was_begun);
    ContextFull context_full(const Member & member) const;

    PassRunner & runner_;
    KvCache & cache_;
    const int32_t max_rows_;
    const bool goes_by_time_;

    static constexpr size_t first_piece = 32;
    size_t piece_ = first_piece;  // of prompts that are watched
    size_t n_last_ = 0;           // tokens of the last pass with a piece of a prompt, and what it took
    double us_last_ = 0.0;
    std::atomic<int64_t> n_passes_{0};
    std::atomic<int64_t> n_sequences_{0};
    std::atomic<double> sequences_a_pass_{1.0};
};

}  // namespace eliza
