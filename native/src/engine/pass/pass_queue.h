// One queue for all who need the model: their requests share forward passes, first come, first served.
//
// A pass reads all weights once, whether it decodes one token or sixteen. So nobody runs a pass alone: who finds
// the queue idle leads. The leader builds one batch of what waits (who has waited longest, then what is short,
// then pieces of long texts), runs it, hands out the rows and wakes those who are done. A leader who needs more
// passes leads on; else the next in the queue does. There is no thread of our own.
//
// Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/pass/cancel_flag.h"
#include "engine/pass/pass_request.h"
#include "engine/pass/pass_runner.h"
#include "engine/pass/pass_scheduler.h"

namespace eliza {

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
    void run_alone(CancelFlag & cancelled, const std::function<void()> & use);

    // Has those who wait, and the pass that runs, look at their flags.
    void wake_cancelled();

    // The stream in this slot is closed: nobody need wait for it to come back.
    void leave(const Slot & slot);

    // How many passes there were; see PassScheduler.
    const PassScheduler & pass() const { return pass_; }

private:
    struct Waiter;

    void wait_until_done(std::unique_lock<std::mutex> & lock, Waiter & me);
    bool may_lead(const Waiter & waiter) const;
    void call_next();
    void remove(Waiter & waiter);
    void expect(const Slot & slot, bool expected);
    void stop_if_cancelled();

    void lead(std::unique_lock<std::mutex> & lock, Waiter & me);
    void wait_for_companions(std::unique_lock<std::mutex> & lock);
    std::vector<Waiter *> hold_candidates();
    void note_outcome(Waiter & waiter, PassScheduler::Member::Outcome outcome);
    void let_go(Waiter & waiter);

    PassRunner & runner_;
    PassScheduler pass_;  // of whoever leads
    const bool share_;

    std::mutex mutex_;  // guards what follows
    std::list<Waiter *> waiting_;
    bool is_led_ = false;
    const std::vector<PassScheduler::Member> * running_ = nullptr;  // in the pass that runs now
    CancelFlag * running_alone_ = nullptr;                          // the flag of whoever uses the context alone
    std::vector<bool> expected_;  // by slot: was done in the last pass, and may be back at once
    int32_t n_expected_ = 0;
    std::condition_variable companion_came_;
    int64_t last_pass_us_ = 0;
};

}  // namespace eliza
