#include "platform/machine.h"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#endif

namespace eliza {

#if defined(__linux__)

namespace {

// Returns true if the system call succeeded.
bool get_allowed_cpus(cpu_set_t & allowed) { return sched_getaffinity(0, sizeof allowed, &allowed) == 0; }

}  // namespace

int32_t usable_cpu_count() {
    cpu_set_t allowed;
    return get_allowed_cpus(allowed) ? std::max(1, CPU_COUNT(&allowed))
                                     : std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int32_t usable_core_count() {
    cpu_set_t allowed;
    if (!get_allowed_cpus(allowed)) {
        return usable_cpu_count();
    }
    std::set<std::string> cores;  // identified by the list of hyperthreads that share the core
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        std::string siblings = std::to_string(cpu);
        std::ifstream("/sys/devices/system/cpu/cpu" + siblings + "/topology/thread_siblings_list") >> siblings;
        cores.insert(siblings);
    }
    return cores.empty() ? usable_cpu_count() : static_cast<int32_t>(cores.size());
}

std::vector<int32_t> all_threads() {
    std::vector<int32_t> threads;
    std::error_code error;
    for (const auto & entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
        threads.push_back(std::stoi(entry.path().filename().string()));
    }
    std::sort(threads.begin(), threads.end());
    return threads;
}

int64_t microseconds_without_core(const std::vector<int32_t> & threads) {
    int64_t nanoseconds = 0;
    bool is_known = true;
    const auto add = [&](int32_t thread) {
        int64_t ran = 0, waited = 0;
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/schedstat");
        is_known = is_known && file >> ran >> waited;
        nanoseconds += waited;
    };
    add(static_cast<int32_t>(syscall(SYS_gettid)));
    for (const int32_t thread : threads) {
        add(thread);
    }
    return is_known ? nanoseconds / 1000 : -1;
}

#elif defined(_WIN32)

// Windows lists at most 64 CPUs of a process here: those of its processor group.
int32_t usable_cpu_count() { return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())); }

int32_t usable_core_count() {
    DWORD_PTR allowed = 0, of_system = 0;
    DWORD size = 0;
    GetLogicalProcessorInformation(nullptr, &size);
    std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> parts(size / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
    if (GetProcessAffinityMask(GetCurrentProcess(), &allowed, &of_system) == 0 ||
        GetLogicalProcessorInformation(parts.data(), &size) == 0) {
        return usable_cpu_count();
    }
    const auto is_allowed_core = [&](const SYSTEM_LOGICAL_PROCESSOR_INFORMATION & part) {
        return part.Relationship == RelationProcessorCore && (part.ProcessorMask & allowed) != 0;
    };
    return std::max(1, static_cast<int32_t>(std::count_if(parts.begin(), parts.end(), is_allowed_core)));
}

std::vector<int32_t> all_threads() { return {}; }
int64_t microseconds_without_core(const std::vector<int32_t> &) { return -1; }

#else

int32_t usable_cpu_count() { return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())); }
int32_t usable_core_count() { return usable_cpu_count(); }
std::vector<int32_t> all_threads() { return {}; }
int64_t microseconds_without_core(const std::vector<int32_t> &) { return -1; }

#endif

}  // namespace eliza
