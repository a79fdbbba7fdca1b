#include "platform/process.h"

#include <algorithm>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace eliza {

#if defined(__unix__) || defined(__APPLE__)

namespace {

struct Forks {
    uint32_t depth = 0;  // written in a new child process, while it has only one thread
    std::mutex mutex;    // guards the lists
    std::vector<GlobalMutex *> mutexes;
    std::vector<void (*)()> resets;

    Forks() { pthread_atfork(lock_all, unlock_all, begin_child); }

    static void lock_all();
    static void unlock_all();
    static void begin_child();
};

// Intentionally leaked: global mutexes may be destroyed after any other static object.
Forks & forks() {
    static Forks & only = *new Forks;
    return only;
}

void Forks::lock_all() {
    forks().mutex.lock();
    for (GlobalMutex * mutex : forks().mutexes) {
        mutex->lock();
    }
}

void Forks::unlock_all() {
    for (GlobalMutex * mutex : forks().mutexes) {
        mutex->unlock();
    }
    forks().mutex.unlock();
}

void Forks::begin_child() {
    unlock_all();
    ++forks().depth;
    for (void (*reset)() : forks().resets) {
        reset();
    }
}

}  // namespace

uint32_t fork_depth() { return forks().depth; }

GlobalMutex::GlobalMutex() {
    const std::lock_guard<std::mutex> lock(forks().mutex);
    forks().mutexes.push_back(this);
}

GlobalMutex::~GlobalMutex() {
    const std::lock_guard<std::mutex> lock(forks().mutex);
    std::vector<GlobalMutex *> & all = forks().mutexes;
    all.erase(std::find(all.begin(), all.end(), this));
}

void reset_after_fork(void (*reset)()) {
    const std::lock_guard<std::mutex> lock(forks().mutex);
    forks().resets.push_back(reset);
}

#else

uint32_t fork_depth() { return 0; }
GlobalMutex::GlobalMutex() = default;
GlobalMutex::~GlobalMutex() = default;
void reset_after_fork(void (*)()) {}

#endif

}  // namespace eliza
