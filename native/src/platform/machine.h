// Information from the operating system about CPUs and about this process's threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eliza {

// Returns the number of CPUs on which this process may run. A container's limit of CPU time counts, too: threads beyond
// it would be stopped for a part of every period, while the other threads of the pass wait for them.
int32_t usable_cpu_count();

// Returns how many CPUs' time the process may use, such as 1.5, by the limits of its control groups (cgroup v1 and v2,
// Linux only); 0 without a limit. `root` is the folder that contains /proc and /sys.
double cpu_quota(const std::string & root = "");

// Returns the number of physical cores among them. Two hyperthreads of a core share the units that matrix products keep
// busy, so a second thread on the same core would only wait.
int32_t usable_core_count();

// Returns the thread ids of this process; empty if the system does not list them.
std::vector<int32_t> all_threads();

// Returns the time in microseconds that the given threads and the calling one were ready to run but had no core, added
// up. Sleeping does not count. Returns -1 if the system does not report it.
int64_t microseconds_without_core(const std::vector<int32_t> & threads);

}  // namespace eliza
