// Taking turns at the one llama_context that several streams share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace eliza {

class TurnQueue {
public:
    // True while whoever has the turn wants to be stopped. Safe from any thread.
    bool is_cancelled() const {
        const std::atomic<bool> * flag = cancelled_.load(std::memory_order_acquire);
        return flag != nullptr && flag->load(std::memory_order_relaxed);
    }

    // What whoever has the turn does once it has stopped.
    void clear_cancelled() { *cancelled_.load() = false; }

    // Has those who wait look at their flags.
    void wake_waiting();

private:
    friend class Turn;

    std::mutex mutex_;  // guards the next three
    std::condition_variable changed_;
    bool taken_ = false;
    uint64_t n_taken_ = 0;
    int n_waiting_ = 0;

    std::atomic<std::atomic<bool> *> cancelled_{nullptr};  // of whoever has the turn
};

// A turn, from construction to destruction. `cancelled` becoming true ends the wait for it: the flag
// is cleared and Error (ELIZA_ERR_CANCELLED) thrown.
class Turn {
public:
    Turn(TurnQueue & queue, std::atomic<bool> & cancelled);
    ~Turn();
    Turn(const Turn &) = delete;
    Turn & operator=(const Turn &) = delete;

    // Lets one of those who wait go first, if any does; cancelled as above.
    void pass_on();

private:
    void take(std::unique_lock<std::mutex> & lock, uint64_t not_before);
    void give_back();

    TurnQueue & queue_;
    std::atomic<bool> & cancelled_;
    bool has_it_ = false;
};

}  // namespace eliza
