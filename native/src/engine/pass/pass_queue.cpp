#include "engine/pass/pass_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace eliza {

// Who waits for a pass, or to be alone with the context.
struct PassQueue::Waiter {
    Waiter(PassScheduler::Ticket * wanted, CancelFlag & cancelled_flag) : ticket(wanted), cancelled(cancelled_flag) {}

    PassScheduler::Ticket * const ticket;  // nullptr: wants to be alone
    CancelFlag & cancelled;
    std::condition_variable wake;
    std::list<Waiter *>::iterator place;  // in the queue
    bool is_held = false;                 // the leader is at it
    bool is_done = false;
    bool is_telling = false;  // its caller how far it is; it will look again
    int64_t served_us = 0;    // of passes it was in
    float fraction = 0.0f;    // of its text, decoded
};

PassQueue::PassQueue(PassRunner & runner, KvCache & cache, bool share, int32_t max_rows)
    : runner_(runner),
      pass_(runner, cache, max_rows, share),
      share_(share),
      expected_(static_cast<size_t>(cache.slots().size()), false) {}

// ---- Waiting --------------------------------------------------------------------------------------

void PassQueue::run(PassRequest & request) {
    PassScheduler::Ticket ticket(request);
    Waiter me(&ticket, request.cancelled);
    const int64_t start = llama_time_us();
    std::unique_lock<std::mutex> lock(mutex_);
    me.place = waiting_.insert(waiting_.end(), &me);
    expect(request.slot, false);
    wait_until_done(lock, me);
    request.counts.wait_us += llama_time_us() - start - me.served_us;
    if (ticket.error) {
        std::rethrow_exception(ticket.error);
    }
}

void PassQueue::run_alone(CancelFlag & cancelled, const std::function<void()> & use) {
    Waiter me(nullptr, cancelled);
    std::unique_lock<std::mutex> lock(mutex_);
    me.place = waiting_.insert(waiting_.end(), &me);
    wait_until_done(lock, me);
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

// Leads the passes that are needed until then, if nobody else does. Who wanted to be alone then is.
void PassQueue::wait_until_done(std::unique_lock<std::mutex> & lock, Waiter & me) {
    float told = 0.0f;
    std::exception_ptr callback_error;  // of a C++ program's progress callback
    const auto tell_progress = [&] {
        if (callback_error || me.fraction <= told || !me.ticket->request.progress) {
            return false;
        }
        told = me.fraction;
        me.is_telling = true;
        call_next();  // others need not wait for that
        lock.unlock();
        try {
            me.ticket->request.progress(told);
        } catch (...) {
            callback_error = std::current_exception();
        }
        lock.lock();
        me.is_telling = false;
        return true;
    };
    const auto throw_callback_error = [&] {
        if (callback_error) {
            call_next();
            std::rethrow_exception(callback_error);
        }
    };
    while (!me.is_done) {
        if (!me.is_held && (callback_error || me.cancelled.is_set())) {
            remove(me);
            throw_callback_error();
            call_next();
            me.cancelled.throw_if_set();
        }
        if (tell_progress()) {
            continue;
        }
        if (!may_lead(me)) {
            call_next();
            me.wake.wait(lock);
        } else if (me.ticket == nullptr) {
            is_led_ = true;
            remove(me);
            return;
        } else {
            lead(lock, me);
        }
    }
    tell_progress();
    throw_callback_error();
    call_next();
}

// Whoever is next in the queue, or anyone if the next needs a pass.
bool PassQueue::may_lead(const Waiter & waiter) const {
    return !is_led_ &&
           (waiting_.front() == &waiter || (waiter.ticket != nullptr && waiting_.front()->ticket != nullptr));
}

void PassQueue::call_next() {
    if (is_led_) {
        return;
    }
    for (Waiter * waiter : waiting_) {
        if (!waiter->is_telling) {
            waiter->wake.notify_one();
            return;
        }
    }
}

void PassQueue::remove(Waiter & waiter) { waiting_.erase(waiter.place); }

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
    // Under the lock, or one who has just looked and not yet slept would miss it.
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_if_cancelled();
    for (Waiter * waiter : waiting_) {
        if (waiter->cancelled.is_set()) {
            waiter->wake.notify_one();
        }
    }
}

// Stops the pass that runs where nobody wants it any more, or most of it: the others' tokens are then decoded
// again, without those that are cancelled. A recurrent state would be lost, so there all must be.
void PassQueue::stop_if_cancelled() {
    if (running_alone_ != nullptr && running_alone_->is_set()) {
        runner_.stop();
    }
    if (running_ == nullptr) {
        return;
    }
    size_t n_tokens = 0, n_cancelled = 0, n_members_left = 0;
    for (const PassScheduler::Member & member : *running_) {
        const bool is_cancelled = member.ticket->request.cancelled.is_set();
        n_tokens += member.n_tokens();
        n_cancelled += is_cancelled ? member.n_tokens() : 0;
        n_members_left += is_cancelled ? 0 : 1;
    }
    if (n_members_left == 0 || (2 * n_cancelled > n_tokens && !runner_.model().is_recurrent())) {
        runner_.stop();
    }
}

// ---- Leading --------------------------------------------------------------------------------------

void PassQueue::lead(std::unique_lock<std::mutex> & lock, Waiter & me) {
    is_led_ = true;
    wait_for_companions(lock);
    const int64_t start = llama_time_us();
    std::vector<Waiter *> held;
    std::vector<PassScheduler::Member> members;
    try {
        held = hold_candidates();
        std::vector<PassScheduler::Ticket *> tickets;
        for (const Waiter * waiter : held) {
            tickets.push_back(waiter->ticket);
        }
        lock.unlock();
        members = pass_.select(tickets);
        lock.lock();
        runner_.clear_stop();
        running_ = &members;
        stop_if_cancelled();
        lock.unlock();
        pass_.run(members);
        lock.lock();
    } catch (...) {  // no memory to put a pass together
        if (!lock.owns_lock()) {
            lock.lock();
        }
        me.ticket->error = std::current_exception();
        me.is_done = true;
        remove(me);
        members.clear();
    }
    running_ = nullptr;
    last_pass_us_ = llama_time_us() - start;
    for (Waiter * waiter : held) {
        const auto member = std::find_if(members.begin(), members.end(), [&](const PassScheduler::Member & each) {
            return each.ticket == waiter->ticket;
        });
        if (member != members.end()) {
            note_outcome(*waiter, member->outcome);
        }
        let_go(*waiter);
    }
    is_led_ = false;
}

void PassQueue::note_outcome(Waiter & waiter, PassScheduler::Member::Outcome outcome) {
    using Outcome = PassScheduler::Member::Outcome;
    waiter.served_us += last_pass_us_;
    if (outcome == Outcome::done) {
        waiter.is_done = true;
        waiter.fraction = waiter.ticket->error ? 0.0f : 1.0f;
        remove(waiter);
        expect(waiter.ticket->request.slot, true);
    } else if (outcome == Outcome::served) {
        waiter.fraction = waiter.ticket->fraction();
        waiting_.splice(waiting_.end(), waiting_, waiter.place);  // the others first
    }
}

// Those who shared the last pass choose their next tokens now: without a moment's wait, two would take turns for
// ever. Bounded by a small part of a pass; who has not come until then is not waited for again.
void PassQueue::wait_for_companions(std::unique_lock<std::mutex> & lock) {
    constexpr int64_t part_of_a_pass = 20;
    if (share_ && n_expected_ > 0) {
        const auto most = std::chrono::microseconds(last_pass_us_ / part_of_a_pass);
        companion_came_.wait_for(lock, most, [&] { return n_expected_ == 0; });
    }
    std::fill(expected_.begin(), expected_.end(), false);
    n_expected_ = 0;
}

// Those whose requests may go through the model together now.
std::vector<PassQueue::Waiter *> PassQueue::hold_candidates() {
    std::vector<Waiter *> candidates;
    for (Waiter * waiter : waiting_) {
        if (waiter->cancelled.is_set()) {
            continue;
        }
        const bool is_alone = waiter->ticket == nullptr || waiter->ticket->request.alone || !share_;
        if (is_alone && (waiter->ticket == nullptr || !candidates.empty())) {
            break;  // those before it first
        }
        candidates.push_back(waiter);
        if (is_alone) {
            break;
        }
    }
    for (Waiter * waiter : candidates) {
        waiter->is_held = true;
    }
    return candidates;
}

void PassQueue::let_go(Waiter & waiter) {
    waiter.is_held = false;
    if (waiter.is_done || waiter.cancelled.is_set() || waiter.ticket->request.progress) {
        waiter.wake.notify_one();
    }
}

}  // namespace eliza
