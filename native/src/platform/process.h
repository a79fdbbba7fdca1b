// What changes for a process when it is forked, and when it ends.
//
// **Static objects** that threads share are created while the library is loaded, not in the first call that uses them.
// If a process is forked while a thread runs such a first call, its child would wait for this thread for ever. They are
// never destroyed, because threads may still run when the process ends. platform/static_destructors.cpp does the same
// for the static objects of llama.cpp.
#pragma once

#include <cstdint>
#include <mutex>

namespace eliza {

// Returns the number of forks between the process that loaded the library and this one. Needs no system call.
uint32_t fork_depth();

// A mutex of global state. A fork waits until no other thread holds it, because the child does not have that thread and
// would wait for it for ever. Hold it for a short time only, and do not lock another mutex or call back meanwhile.
class GlobalMutex {
public:
    GlobalMutex();
    ~GlobalMutex();
    GlobalMutex(const GlobalMutex &) = delete;
    GlobalMutex & operator=(const GlobalMutex &) = delete;

    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

private:
    std::mutex mutex_;
};

// Work on a device, whose driver ends with the process even if threads still run. exit() asks such work to stop, and
// waits for it for at most two seconds.
class WorkBeforeExit {
public:
    // Throws an Error if the process ends.
    WorkBeforeExit();
    ~WorkBeforeExit();
    WorkBeforeExit(const WorkBeforeExit &) = delete;
    WorkBeforeExit & operator=(const WorkBeforeExit &) = delete;

    // Returns whether the process ends: running work must stop.
    static bool must_stop();
};

// Calls `reset` in every new child process, before the child runs other code of this library.
void reset_after_fork(void (*reset)());

}  // namespace eliza
