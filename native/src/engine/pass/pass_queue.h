// One queue for all who need the model: their requests share forward passes, first come, first served.
//
// A pass reads all weights once, whether it decodes one token or sixteen. So nobody runs a pass alone: who finds
// the queue idle leads. The leader builds one batch of what waits (who has waited longest, then what is short,
// then pieces of long texts), runs it, hands out the rows and wakes those who are done. A leader who needs more
// passes leads on; else the next in the queue does. There is no thread of our own.
//
// Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/pass/pass_request.h"
#include "engine/pass/pass_runner.h"
#include "error.h"

namespace eliza {

class ContextFull : public Error {
public:
    using Error::Error;
};

class PassQueue {
public:
    // `share`: requests may go through the model together, or else every one alone. A pass has room for
    // max_rows rows of logits, or those of one request.
    PassQueue(PassRunner & runner, KvCache & cache, bool share, int32_t max_rows);
    PassQueue(const PassQueue &) = delete;
    PassQueue & operator=(const PassQueue &) = delete;

    // Returns once the request is done. Throws Error: ContextFull drops what the request has decoded, all others keep
    // what was decoded until then.
    void run(PassRequest & request);

    // Calls `use` when its turn comes, while no pass runs and nobody else touches the context or its cache.
    // Throws Error where it is cancelled before.
    void run_alone(std::atomic<bool> & cancelled, const std::function<void()> & use);

    // Has those who wait, and the pass that runs, look at their flags.
    void wake_cancelled();

    // The stream in this slot is closed: nobody need wait for it to come back.
    void leave(const Slot & slot);

    // How many passes there were, how many sequences in all of them, and how many in one of late.
    int64_t n_passes() const { return n_passes_.load(std::memory_order_relaxed); }
    int64_t n_sequences() const { return n_sequences_.load(std::memory_order_relaxed); }
    double sequences_a_pass() const { return sequences_a_pass_.load(std::memory_order_relaxed); }

private:
    struct Waiter;
    struct Member;

    void wait_until_done(std::unique_lock<std::mutex> & lock, Waiter & me);
    bool may_lead(const Waiter & waiter) const;
    void call_next();
    void remove(Waiter & waiter);
    void expect(const Slot & slot, bool expected);
    void stop_if_cancelled();

    void lead(std::unique_lock<std::mutex> & lock, Waiter & me);
    void wait_for_companions(std::unique_lock<std::mutex> & lock);
    std::vector<Waiter *> hold_candidates();
    void let_go(Waiter & waiter);

    void prepare(Waiter & waiter);
    std::vector<Member> select(const std::vector<Waiter *> & candidates);
    void compute_heads(std::vector<Member> & members);
    void decode(std::vector<Member> & members);
    void put_into(Batch & batch, Member & member);
    PassRunner::Wanted wanted_by(const std::vector<Member *> & members) const;
    void hand_out(Member & member, size_t n_members, int64_t microseconds);
    void take_back(Member & member, bool was_begun);
    ContextFull context_full(const Member & member) const;

    PassRunner & runner_;
    KvCache & cache_;
    const bool share_;
    const int32_t max_rows_;

    std::mutex mutex_;  // guards what follows
    std::list<Waiter *> waiting_;
    bool is_led_ = false;
    const std::vector<Member> * running_ = nullptr;  // in the pass that runs now
    std::atomic<bool> * running_alone_ = nullptr;    // the flag of whoever uses the context alone
    std::vector<bool> expected_;                     // by slot: was done in the last pass, and may be back at once
    int32_t n_expected_ = 0;
    std::condition_variable companion_came_;
    int64_t last_pass_us_ = 0;

    std::atomic<int64_t> n_passes_{0};
    std::atomic<int64_t> n_sequences_{0};
    std::atomic<double> sequences_a_pass_{1.0};
};

}  // namespace eliza
