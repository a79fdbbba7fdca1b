#include "engine/pass/threads.h"

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

int32_t useful_thread_count(int32_t n_threads, uint64_t n_params, int32_t n_tokens) {
    // Every pass reads all weights, whatever its number of tokens. So it keeps at least as many threads busy as a pass
    // of one token. The arithmetic of a large batch can keep more threads busy.
    constexpr double one_token_flops = 64e6;
    constexpr double batch_flops = 512e6;
    const double flops = 2.0 * static_cast<double>(n_params);
    const double useful = std::max(flops / one_token_flops, flops * n_tokens / batch_flops);
    return useful >= n_threads ? n_threads : std::max(1, static_cast<int32_t>(useful));
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

int32_t BusyMachineGuard::limit(int32_t n_threads) {
    if (n_threads > 1 && left_ > 0) {
        --left_;
        return 1;
    }
    return n_threads;
}

void BusyMachineGuard::note_pass(int64_t microseconds, int64_t without_core) {
    // Threads that wait for one another are as slow as a single thread if each of them loses a third of its core's
    // time. If as many other programs compute as there are cores, each thread loses half of it. On an idle machine, the
    // system's own work can disturb one pass, but not two in a row.
    if (3 * without_core <= microseconds) {
        n_busy_ = 0;
        if (++n_clean_ >= first_pause) {
            pause_ = first_pause;
        }
        return;
    }
    n_clean_ = 0;
    if (++n_busy_ >= 2) {
        left_ = pause_;
        pause_ = std::min(2 * pause_, longest_pause);
    }
}

}  // namespace eliza
