#pragma once

#include <cstdint>

namespace eliza {

// The physical cores this process may run on: two hyperthreads of one core share the units that
// matrix products keep busy, so a second thread there only waits.
int32_t default_thread_count();

}  // namespace eliza
