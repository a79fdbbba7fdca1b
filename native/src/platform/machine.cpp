#include "platform/machine.h"

#include <algorithm>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
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

// A limit is written in "cpu.max" as "quota period" or "max period" (v2), or in two files (v1, where -1 is no limit).
// The limits of all parent groups apply as well.
double cpu_quota(const std::string & root) {
    namespace fs = std::filesystem;
    double least = 0.0;
    const auto note = [&](double quota, double period) {
        if (quota > 0.0 && period > 0.0 && (least == 0.0 || quota / period < least)) {
            least = quota / period;
        }
    };
    const auto read_group = [&](const fs::path & folder) {
        double quota = 0.0, period = 0.0;
        if (std::ifstream(folder / "cpu.max") >> quota >> period) {
            note(quota, period);
        }
        std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
        std::ifstream(folder / "cpu.cfs_period_us") >> period;
        note(quota, period);
    };
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) {
            continue;
        }
        const fs::path top = fs::path(root + "/sys/fs/cgroup") / controllers;
        fs::path group = fs::path(line.substr(second + 1)).relative_path();
        for (; !group.empty(); group = group.parent_path()) {
            read_group(top / group);
        }
        read_group(top);  // in a container, this is the container's own group
    }
    return least;
}

namespace {

// Returns n, or the number of whole CPUs in the limit of CPU time if that is less.
int32_t within_quota(int32_t n) {
    const double quota = cpu_quota();
    return std::max(1, quota > 0.0 ? std::min(n, static_cast<int32_t>(quota)) : n);
}

}  // namespace

int32_t usable_cpu_count() {
    cpu_set_t allowed;
    return within_quota(get_allowed_cpus(allowed) ? CPU_COUNT(&allowed)
                                                  : static_cast<int32_t>(std::thread::hardware_concurrency()));
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
    return cores.empty() ? usable_cpu_count() : within_quota(static_cast<int32_t>(cores.size()));
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

#else

double cpu_quota(const std::string &) { return 0.0; }

#endif

#if defined(_WIN32)

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

#elif !defined(__linux__)

int32_t usable_cpu_count() { return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())); }
int32_t usable_core_count() { return usable_cpu_count(); }
std::vector<int32_t> all_threads() { return {}; }
int64_t microseconds_without_core(const std::vector<int32_t> &) { return -1; }

#endif

}  // namespace eliza
