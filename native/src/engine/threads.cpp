#include "engine/threads.h"

#include <algorithm>
#include <thread>

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

}  // namespace eliza
