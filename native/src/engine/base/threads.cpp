#include "engine/base/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace eliza {

int32_t startable_thread_count(int32_t n_threads) {
    std::mutex mutex;
    std::condition_variable all_tried;
    bool may_end = false;
    std::vector<std::thread> threads;
    try {
        while (static_cast<int32_t>(threads.size()) + 1 < n_threads) {
            threads.emplace_back([&] {
                std::unique_lock<std::mutex> lock(mutex);
                all_tried.wait(lock, [&] { return may_end; });
            });
        }
    } catch (...) {  // the system has no more threads or memory
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        may_end = true;
    }
    all_tried.notify_all();
    for (std::thread & thread : threads) {
        thread.join();
    }
    return static_cast<int32_t>(threads.size()) + 1;
}

int32_t useful_thread_count(int32_t n_threads, uint64_t n_products, bool has_guard) {
    // Measured with two cores and four models of 1 to 40 million weights: from 20 million products on, two threads are
    // at least 1.15 times as fast as one.
    const uint64_t products_per_thread = has_guard ? 10'000'000 : 100'000'000;
    const uint64_t n_useful = n_products / products_per_thread;
    return n_useful >= static_cast<uint64_t>(n_threads) ? n_threads : std::max(1, static_cast<int32_t>(n_useful));
}

namespace {

std::atomic<int32_t> n_own_threads{0};
std::atomic<uint64_t> n_times_begun{0};
constexpr OwnThreads::Mark ran = UINT64_MAX;  // threads were working when the mark was made

}  // namespace

OwnThreads::OwnThreads(int32_t n) : n_(n) {
    n_own_threads += n_;
    ++n_times_begun;
}

OwnThreads::~OwnThreads() { n_own_threads -= n_; }

int32_t OwnThreads::n_running() { return n_own_threads; }

OwnThreads::Mark OwnThreads::mark() { return n_own_threads > 0 ? ran : n_times_begun.load(); }

bool OwnThreads::ran_since(Mark mark) { return mark == ran || n_times_begun != mark; }

// A static object as described in platform/process.h.
static BusyMachineGuard & guard_of_process = *new BusyMachineGuard;

BusyMachineGuard & BusyMachineGuard::of_process() { return guard_of_process; }

int32_t BusyMachineGuard::limit(int32_t n_threads, int64_t now_us) const {
    const std::lock_guard<GlobalMutex> lock(mutex_);
    return now_us < pause_end_us_ ? 1 : n_threads;
}

bool BusyMachineGuard::is_due(int64_t now_us) {
    constexpr int64_t interval_us = 100'000;
    const std::lock_guard<GlobalMutex> lock(mutex_);
    const bool is_due = is_busy_ || busy_us_ > 0 || now_us - measured_us_ >= interval_us;
    if (is_due) {
        measured_us_ = now_us;
    }
    return is_due;
}

void BusyMachineGuard::note_pass(int64_t now_us, int64_t duration, int64_t without_core) {
    const std::lock_guard<GlobalMutex> lock(mutex_);
    // Two threads are as slow as one if one of them shares its core with another program and so loses half of its time,
    // a quarter on average. On an idle machine, the system's own work can disturb one pass, but not two in a row.
    if (5 * without_core <= duration) {
        busy_us_ = 0;
        is_busy_ = false;
        return;
    }
    is_busy_ = is_busy_ || busy_us_ > 0;
    busy_us_ += duration;
    if (is_busy_) {
        pause_end_us_ = now_us + 20 * busy_us_;
        busy_us_ = 0;
    }
}

}  // namespace eliza
