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

}  // namespace eliza
