// POSIX functions that some tests call. Windows lacks them: there, tests that need them are skipped, and the
// declarations below only make the tests compile.
#pragma once

#if !defined(_WIN32)

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIP_ON_WINDOWS(reason) static_cast<void>(reason)

constexpr bool is_windows = false;

#else

#include <process.h>
#include <sys/types.h>

#define SKIP_ON_WINDOWS(reason) GTEST_SKIP() << (reason)

constexpr bool is_windows = true;
constexpr int SIGXFSZ = 0, RLIMIT_FSIZE = 0, RLIMIT_NPROC = 0;
struct rlimit {
    unsigned long rlim_cur, rlim_max;
};
inline int getrlimit(int, rlimit *) { return -1; }
inline int setrlimit(int, const rlimit *) { return -1; }
inline int setuid(int) { return -1; }
inline int geteuid() { return 0; }
inline int mkfifo(const char *, int) { return -1; }
inline pid_t fork() { return -1; }
inline pid_t waitpid(pid_t, int *, int) { return -1; }
inline int WIFEXITED(int) { return 0; }
inline int WEXITSTATUS(int) { return -1; }
inline void alarm(unsigned) {}

#endif

#if defined(__linux__)

#include <sched.h>

// Keeps this process on its present CPU. Returns false if the system does not allow that.
inline bool use_one_cpu() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

#else

inline bool use_one_cpu() { return false; }

#endif
