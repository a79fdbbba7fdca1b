// What the system tells of its CPUs and of this process's threads.
#pragma once

#include <cstdint>
#include <vector>

namespace eliza {

// The CPUs this process may run on.
int32_t usable_cpu_count();

// The physical cores among them: two hyperthreads of one core share the units that matrix products keep busy, so a
// second thread there only waits.
int32_t usable_core_count();

// Threads of this process, by the system's numbers; empty where it has none.
std::vector<int32_t> all_threads();

// How long some threads, and the calling one, have been ready to run and have not run, together, in microseconds:
// other threads had the cores. Those that sleep do not count. 0 where the system does not tell.
int64_t microseconds_without_core(const std::vector<int32_t> & threads);

}  // namespace eliza
