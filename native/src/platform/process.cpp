#include "platform/process.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace eliza {

#if defined(__unix__) || defined(__APPLE__)

static uint32_t depth = 0;  // written in a new child process, while it has only one thread

uint32_t fork_depth() {
    [[maybe_unused]] static const int is_watching = pthread_atfork(nullptr, nullptr, [] { ++depth; });
    return depth;
}

#else

uint32_t fork_depth() { return 0; }

#endif

}  // namespace eliza
