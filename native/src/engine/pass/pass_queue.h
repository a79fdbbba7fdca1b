// The queue of all requests to one llama_context: they share forward passes, first come, first served.
//
// A pass reads all weights once, whether it decodes one token or sixteen. So requests go through the model together.
// The queue has no thread of its own, which would have to be woken for each token: with a small model, a single stream
// took 1.2 to 1.8 times as long. Instead, a caller that finds no pass running becomes the leader. The leader builds one
// batch from the waiting requests (first the oldest request, then short requests, then pieces of long prompts), runs
// the pass, hands out the rows and wakes the callers whose requests are done. It leads until its own request is done;
// then the first waiting caller leads.
//
// Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "cancel_flag.h"
#include "engine/cache/kv_cache.h"
#include "engine/pass/pass_request.h"
#include "engine/pass/pass_runner.h"
#include "engine/pass/pass_scheduler.h"

namespace eliza {

class PassQueue {
public:
    // With `share`, requests go through the model together, otherwise one at a time. A pass computes at most max_rows
    // rows of logits, unless a single request needs more.
    PassQueue(PassRunner & runner, KvCache & cache, bool share);
    PassQueue(const PassQueue &) = delete;
    PassQueue & operator=(const PassQueue &) = delete;

    // Returns when the request is done. A slot has one request at a time. Throws Error: after ContextFull the tokens
    // that the request has decoded are dropped, after all other errors they are kept.
    void run(PassRequest & request);

    // Calls `use` while no pass runs, so that it may use the context and its cache. Throws Error if the request is
    // cancelled before its turn.
    void run_alone(Slot & slot, CancelFlag & cancelled, const std::function<void()> & use);

    // Makes the waiting requests, and the running pass, look at their cancel flags.
    void wake_cancelled();

    // Call this when the slot's stream is closed: passes then no longer wait for its next request.
    void leave(const Slot & slot);

    const PassScheduler & scheduler() const { return scheduler_; }

private:
    // The threads to wake once the mutex is free. A woken thread would otherwise wait for the mutex.
    using Wakes = std::vector<std::condition_variable *>;

    std::condition_variable & wake_of(const PassRequest & request) {
        return wakes_[static_cast<size_t>(request.slot.id)];
    }
    void wait_until_done(std::unique_lock<std::mutex> & lock, PassRequest & me);
    bool tell_progress(std::unique_lock<std::mutex> & lock, PassRequest & me);
    void throw_if_ended(PassRequest & me);
    const PassRequest * first_ready() const;
    bool may_lead(const PassRequest & request) const;
    std::condition_variable * next_leader();
    void call_next();
    void enqueue(PassRequest & request);
    void remove(PassRequest & request);
    void expect(const Slot & slot, bool expected);
    void stop_if_cancelled();

    void lead(std::unique_lock<std::mutex> & lock, PassRequest & me);
    void wait_for_companions(std::unique_lock<std::mutex> & lock, const PassRequest & me);
    std::vector<PassRequest *> hold_candidates();
    void note_outcome(PassRequest & request, int64_t microseconds);

    PassRunner & runner_;
    PassScheduler scheduler_;  // used by the leader
    const bool share_;

    // By slot. They outlive the requests, so that they can be notified after the mutex is released.
    std::deque<std::condition_variable> wakes_;

    std::mutex mutex_;  // guards the members below
    std::list<PassRequest *> waiting_;
    bool is_led_ = false;
    const PassScheduler::Pass * running_ = nullptr;
    CancelFlag * running_alone_ = nullptr;  // of the caller that uses the context alone
    std::vector<bool> expected_;            // by slot: its request ended with the last pass, so the next may come soon
    int32_t n_expected_ = 0;
    std::condition_variable companion_came_;
    int64_t last_pass_us_ = 0;
    int64_t last_progress_us_ = 0;  // when a request last got something from a pass
};

}  // namespace eliza
