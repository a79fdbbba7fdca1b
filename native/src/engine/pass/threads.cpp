#include "engine/pass/threads.h"

#include <algorithm>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#endif

#if defined(__linux__)
#include <sched.h>

#include <fstream>
#include <set>
#include <string>
#endif

namespace eliza {

int32_t default_thread_count() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        std::set<std::string> cores;  // by the list of hyperthreads that share one
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (!CPU_ISSET(cpu, &allowed)) {
                continue;
            }
            std::string siblings = std::to_string(cpu);
            std::ifstream("/sys/devices/system/cpu/cpu" + siblings + "/topology/thread_siblings_list") >> siblings;
            cores.insert(siblings);
        }
        if (!cores.empty()) {
            return static_cast<int32_t>(cores.size());
        }
    }
#endif
    return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int32_t useful_thread_count(int32_t n_threads, uint64_t n_params, int32_t n_tokens) {
    // One token reads all weights for two operations each: it is bound by memory, a batch is not.
    constexpr double one_token_flops = 64e6;
    constexpr double batch_flops = 512e6;
    const double flops = 2.0 * static_cast<double>(n_params) * n_tokens;
    const double useful = flops / (n_tokens == 1 ? one_token_flops : batch_flops);
    return useful >= n_threads ? n_threads : std::max(1, static_cast<int32_t>(useful));
}

int32_t BusyMachineGuard::limit(int32_t n_threads) {
    if (left_ > 0) {
        --left_;
        return 1;
    }
    return n_threads;
}

void BusyMachineGuard::look_at_pass(int64_t microseconds, int64_t n_switches) {
    // On an idle machine a core is lost a few times a second; to another program that computes, as
    // often as the scheduler's slices end, which are a few milliseconds long. One pass may meet the
    // system's own work on an idle machine; two in a row do not.
    constexpr int64_t idle_microseconds = 10000;
    if (n_switches < 2 || n_switches * idle_microseconds <= microseconds) {
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

int64_t BusyMachineGuard::count_switches() {
#if defined(__unix__) || defined(__APPLE__)
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
#else
    return 0;
#endif
}

}  // namespace eliza
