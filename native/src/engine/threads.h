#pragma once

#include <cstdint>

namespace eliza {

// The physical cores this process may run on: two hyperthreads of one core share the units that
// matrix products keep busy, so a second thread there only waits.
int32_t default_thread_count();

// How many of n_threads to use for a pass over n_tokens. Threads wait for each other, spinning, after
// every operation of the graph: below some 5 ms of one core's work that costs more than it saves, and
// on a busy machine a hundred times more.
int32_t useful_thread_count(int32_t n_threads, uint64_t n_params, int32_t n_tokens);

}  // namespace eliza
