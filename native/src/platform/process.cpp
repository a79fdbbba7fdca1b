#include "platform/process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "error.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace eliza {

static std::atomic<int32_t> n_working{0};  // objects of WorkBeforeExit

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
    n_working = 0;  // of threads that the child does not have
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

namespace {

std::atomic<bool> is_ending{false};

void end_all_work() {
    constexpr std::chrono::milliseconds step{1};
    constexpr int most_steps = 2000;  // exit() may have been called by a thread in the middle of work
    is_ending = true;
    for (int i = 0; i < most_steps && n_working > 0; ++i) {
        std::this_thread::sleep_for(step);
    }
}

void add_end_of_work() {
#if defined(__unix__) || defined(__APPLE__)
    // The one of the C library: in this library, platform/static_destructors.cpp replaces it. The function uses no
    // argument, because ThreadSanitizer passes none.
    using Register = int (*)(void (*)(void *), void *, void *);
    if (const auto add = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "__cxa_atexit"))) {
        add([](void *) { end_all_work(); }, nullptr, nullptr);
    }
#else
    std::atexit(end_all_work);
#endif
}

// Of the functions that exit() calls, the last registered one comes first. Drivers may register theirs when they are
// first used. So this function is registered after the first few pieces of work: loading a model, and different kinds
// of passes.
void end_work_at_exit() {
    constexpr int32_t n_first = 8;
    static std::atomic<int32_t> n_done{0};
    if (n_done < n_first && n_done.fetch_add(1) < n_first) {
        add_end_of_work();
    }
}

}  // namespace

WorkBeforeExit::WorkBeforeExit() {
    const auto check = [] {
        if (is_ending) {
            throw Error(ELIZA_ERR_CANCELLED, "the process is ending");
        }
    };
    check();  // before counting, because end_all_work() would wait for attempts of other threads
    ++n_working;
    if (is_ending) {
        --n_working;
        check();
    }
}

WorkBeforeExit::~WorkBeforeExit() {
    end_work_at_exit();
    --n_working;
}

bool WorkBeforeExit::must_stop() { return is_ending; }

}  // namespace eliza
