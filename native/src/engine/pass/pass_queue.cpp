#include "engine/pass/pass_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace eliza {

using Kind = PassRequest::Kind;
using Outcome = PassRequest::Part::Outcome;

namespace {

// If all requests wait for room in the cache, how often to look for it, and how long streams that have tokens there may
// take until their next request. Streams usually ask for the next pass within a millisecond.
constexpr std::chrono::milliseconds look_again{5};
constexpr int64_t most_idle_us = 100 * 1000;

}  // namespace

PassQueue::PassQueue(PassRunner & runner, KvCache & cache, bool share)
    : runner_(runner),
      scheduler_(runner, cache, share),
      share_(share),
      wakes_(static_cast<size_t>(cache.slots().size())),
      expected_(static_cast<size_t>(cache.slots().size()), false) {}

// ---- Waiting --------------------------------------------------------------------------------------

void PassQueue::run(PassRequest & request) {
    const int64_t start = llama_time_us();
    std::unique_lock<std::mutex> lock(mutex_);
    enqueue(request);
    wait_until_done(lock, request);
    request.counts.wait_us += llama_time_us() - start - request.served_us;
    if (request.error) {
        std::rethrow_exception(request.error);
    }
}

void PassQueue::run_alone(Slot & slot, CancelFlag & cancelled, const std::function<void()> & use) {
    StreamCounts uncounted{};
    PassRequest request(slot, cancelled, uncounted);
    request.kind = Kind::alone;
    std::unique_lock<std::mutex> lock(mutex_);
    enqueue(request);
    wait_until_done(lock, request);
    runner_.clear_stop();
    running_alone_ = &cancelled;
    lock.unlock();
    std::exception_ptr error;
    try {
        use();
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    running_alone_ = nullptr;
    is_led_ = false;
    call_next();
    if (error) {
        std::rethrow_exception(error);
    }
}

void PassQueue::enqueue(PassRequest & request) {
    request.in_queue = waiting_.insert(waiting_.end(), &request);
    expect(request.slot, false);
}

void PassQueue::remove(PassRequest & request) { waiting_.erase(request.in_queue); }

// Leads passes until the request is done, or waits while another thread leads. A request to use the context alone runs
// no pass: it is done as soon as its thread becomes the leader.
void PassQueue::wait_until_done(std::unique_lock<std::mutex> & lock, PassRequest & me) {
    while (!me.is_done) {
        throw_if_ended(me);
        if (tell_progress(lock, me)) {
            continue;
        }
        if (!may_lead(me)) {
            call_next();
            wake_of(me).wait(lock);
        } else if (me.kind == Kind::alone) {
            is_led_ = true;
            me.is_done = true;
            remove(me);
        } else {
            lead(lock, me);
        }
    }
    tell_progress(lock, me);
    if (me.callback_error) {
        std::rethrow_exception(me.callback_error);
    }
}

// If the request is cancelled or its callback has thrown, removes the request and throws. Does nothing while the leader
// holds the request.
void PassQueue::throw_if_ended(PassRequest & me) {
    if (me.is_held || !(me.callback_error || me.cancelled.is_set())) {
        return;
    }
    remove(me);
    call_next();
    if (me.callback_error) {
        std::rethrow_exception(me.callback_error);
    }
    me.cancelled.throw_if_set();
}

// Calls the request's progress callback if there is new progress. Returns whether it called the callback; the mutex is
// released during the callback.
bool PassQueue::tell_progress(std::unique_lock<std::mutex> & lock, PassRequest & me) {
    if (!me.progress || me.callback_error || me.fraction <= me.fraction_told) {
        return false;
    }
    me.fraction_told = me.fraction;
    me.is_in_callback = true;
    call_next();  // others need not wait for the callback
    lock.unlock();
    try {
        me.progress(me.fraction_told);
    } catch (...) {
        me.callback_error = std::current_exception();
    }
    lock.lock();
    me.is_in_callback = false;
    return true;
}

// The first request whose thread can lead now, or nullptr: a cancelled request leaves the queue instead.
const PassRequest * PassQueue::first_ready() const {
    const auto first = std::find_if(waiting_.begin(), waiting_.end(), [](const PassRequest * request) {
        return !request->is_in_callback && !request->cancelled.is_set();
    });
    return first == waiting_.end() ? nullptr : *first;
}

// The first that is ready may lead. If the first needs a pass, any request that needs a pass may lead.
bool PassQueue::may_lead(const PassRequest & request) const {
    const PassRequest * first = first_ready();
    return !is_led_ && first != nullptr &&
           (first == &request || (request.kind != Kind::alone && first->kind != Kind::alone));
}

std::condition_variable * PassQueue::next_leader() {
    const PassRequest * next = is_led_ ? nullptr : first_ready();
    return next == nullptr ? nullptr : &wake_of(*next);
}

void PassQueue::call_next() {
    if (std::condition_variable * wake = next_leader()) {
        wake->notify_one();
    }
}

void PassQueue::expect(const Slot & slot, bool expected) {
    const auto i = static_cast<size_t>(slot.id);
    if (expected_[i] != expected) {
        expected_[i] = expected;
        n_expected_ += expected ? 1 : -1;
        if (n_expected_ == 0) {
            companion_came_.notify_one();
        }
    }
}

void PassQueue::leave(const Slot & slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect(slot, false);
}

void PassQueue::wake_cancelled() {
    // Under the lock: a thread that has just looked at its flag and does not wait yet would miss the notification.
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_if_cancelled();
    for (PassRequest * request : waiting_) {
        if (request->cancelled.is_set()) {
            wake_of(*request).notify_one();
        }
    }
}

// Stops the running pass if most of its tokens belong to cancelled requests; the other tokens are decoded again in the
// next pass. Stopping loses the state of a recurrent model, so its pass is stopped only if all requests are cancelled.
void PassQueue::stop_if_cancelled() {
    if (running_alone_ != nullptr && running_alone_->is_set()) {
        runner_.stop();
    }
    if (running_ == nullptr) {
        return;
    }
    size_t n_tokens = 0, n_cancelled = 0, n_requests_left = 0;
    for (const PassRequest * request : running_->members) {
        const bool is_cancelled = request->cancelled.is_set();
        n_tokens += request->n_in_pass();
        n_cancelled += is_cancelled ? request->n_in_pass() : 0;
        n_requests_left += is_cancelled ? 0 : 1;
    }
    if (n_requests_left == 0 || (2 * n_cancelled > n_tokens && !runner_.model().is_recurrent())) {
        runner_.stop();
    }
}

// ---- Leading --------------------------------------------------------------------------------------

void PassQueue::lead(std::unique_lock<std::mutex> & lock, PassRequest & me) {
    is_led_ = true;
    wait_for_companions(lock, me);
    const int64_t start = llama_time_us();
    Wakes wakes;
    std::vector<PassRequest *> held;
    PassScheduler::Pass pass{};  // not inside the try block: after an exception, running_ still points to it
    const bool may_evict = start - last_progress_us_ > most_idle_us;
    try {
        wakes.reserve(waiting_.size());  // now, because nothing may throw once requests are held
        held = hold_candidates();
        lock.unlock();
        pass = scheduler_.select(held, may_evict);
        lock.lock();
        runner_.clear_stop();
        running_ = &pass;
        stop_if_cancelled();
        lock.unlock();
        scheduler_.run(pass);
        lock.lock();
        running_ = nullptr;
        if (pass.kind == Kind::text && !pass.members.empty()) {
            last_pass_us_ = llama_time_us() - start;
        }
    } catch (...) {  // no memory to build the batch
        if (!lock.owns_lock()) {
            lock.lock();
        }
        running_ = nullptr;
        for (PassRequest * request : held) {
            request->part.outcome = Outcome::waits;
        }
        me.fail(std::current_exception());
    }
    const int64_t microseconds = llama_time_us() - start;
    const bool all_wait = std::all_of(
        held.begin(), held.end(), [](const PassRequest * request) { return request->part.outcome == Outcome::waits; });
    last_progress_us_ = all_wait ? last_progress_us_ : llama_time_us();
    for (PassRequest * request : held) {
        note_outcome(*request, microseconds);
        if (request != &me && (request->is_done || request->cancelled.is_set() || request->progress)) {
            wakes.push_back(&wake_of(*request));
        }
    }
    if (me.error && !me.is_done) {
        note_outcome(me, microseconds);  // the error came before it was held
    }
    std::condition_variable * next = nullptr;
    if (me.is_done) {
        is_led_ = false;
        next = next_leader();
    }
    lock.unlock();
    if (next != nullptr) {
        next->notify_one();
    }
    for (std::condition_variable * wake : wakes) {
        wake->notify_one();
    }
    lock.lock();
    if (!me.is_done) {
        is_led_ = false;  // only after lock(), so that this thread leads the next pass, too
        if (all_wait && !me.error) {
            wake_of(me).wait_for(lock, look_again);
        }
    }
}

void PassQueue::note_outcome(PassRequest & request, int64_t microseconds) {
    request.is_held = false;
    const Outcome outcome = request.part.outcome;
    if (outcome == Outcome::waits) {
        return;
    }
    request.served_us += microseconds;
    if (outcome == Outcome::done) {
        request.is_done = true;
        request.fraction = request.error ? 0.0f : 1.0f;
        remove(request);
        expect(request.slot, request.may_share);
    } else {
        request.fraction = scheduler_.fraction(request);
        waiting_.splice(waiting_.end(), waiting_, request.in_queue);  // other requests go first
    }
}

// The streams of the last pass choose their next tokens now. Without a short wait for them, two streams would take
// turns for ever and share no pass. The wait is limited to a small part of a pass, and a stream that comes too late is
// not waited for again.
void PassQueue::wait_for_companions(std::unique_lock<std::mutex> & lock, const PassRequest & me) {
    constexpr int64_t part_of_a_pass = 20;
    if (share_ && me.may_share && n_expected_ > 0) {
        const auto most = std::chrono::microseconds(last_pass_us_ / part_of_a_pass);
        companion_came_.wait_for(lock, most, [&] { return n_expected_ == 0; });
    }
    std::fill(expected_.begin(), expected_.end(), false);
    n_expected_ = 0;
}

// Holds the requests that may go through the model together now.
std::vector<PassRequest *> PassQueue::hold_candidates() {
    std::vector<PassRequest *> candidates;
    bool is_first = true;
    for (PassRequest * request : waiting_) {
        if (request->cancelled.is_set()) {
            continue;
        }
        if (request->is_suspended) {
            candidates.push_back(request);
            continue;
        }
        const bool is_alone = request->kind == Kind::alone || !request->may_share || !share_;
        if (is_alone && (request->kind == Kind::alone || !is_first)) {
            break;  // the requests before it go first
        }
        is_first = false;
        candidates.push_back(request);
        if (is_alone) {
            break;
        }
    }
    for (PassRequest * request : candidates) {
        request->is_held = true;
    }
    return candidates;
}

}  // namespace eliza
