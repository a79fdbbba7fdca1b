#include "engine/pass/turns.h"

#include "error.h"

namespace eliza {

void TurnQueue::wake_waiting() {
    // Under the lock, or one who has just looked and not yet slept would miss it.
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
}

Turn::Turn(TurnQueue & queue, std::atomic<bool> & cancelled) : queue_(queue), cancelled_(cancelled) {
    std::unique_lock<std::mutex> lock(queue_.mutex_);
    take(lock, 0);
}

Turn::~Turn() {
    const std::lock_guard<std::mutex> lock(queue_.mutex_);
    give_back();
}

void Turn::pass_on() {
    std::unique_lock<std::mutex> lock(queue_.mutex_);
    if (queue_.n_waiting_ > 0) {
        give_back();
        take(lock, queue_.n_taken_ + 1);
    }
}

// Waits until the turn is free and has been taken `not_before` times, or nobody else waits.
void Turn::take(std::unique_lock<std::mutex> & lock, uint64_t not_before) {
    ++queue_.n_waiting_;
    queue_.changed_.wait(lock, [&] {
        const bool is_my_turn = queue_.n_taken_ >= not_before || queue_.n_waiting_ == 1;
        return (!queue_.taken_ && is_my_turn) || cancelled_;
    });
    --queue_.n_waiting_;
    if (cancelled_.exchange(false)) {
        queue_.changed_.notify_all();
        throw Error(ELIZA_ERR_CANCELLED, "cancelled");
    }
    queue_.taken_ = true;
    ++queue_.n_taken_;
    queue_.cancelled_ = &cancelled_;
    has_it_ = true;
}

void Turn::give_back() {
    if (has_it_) {
        has_it_ = false;
        queue_.cancelled_ = nullptr;
        queue_.taken_ = false;
        queue_.changed_.notify_all();
    }
}

}  // namespace eliza
