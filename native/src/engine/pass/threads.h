// How many threads a pass is worth, and can have.
#pragma once

#include <cstdint>

namespace eliza {

// How many of n_threads can be started beside this one, it included: the system may allow fewer, and ggml ends the
// process where one does not start.
int32_t startable_thread_count(int32_t n_threads);

// How many of n_threads to use for a pass over n_tokens. Threads wait for each other, spinning, after
// every operation of the graph: below some 5 ms of one core's work that costs more than it saves, and
// on a busy machine a hundred times more.
int32_t useful_thread_count(int32_t n_threads, uint64_t n_params, int32_t n_tokens);

// Threads of this library that work beside passes, such as those that cut choices into tokens. Passes leave them the
// cores they need, and do not take them for another program.
class OwnThreads {
public:
    // While one lives, n threads work.
    explicit OwnThreads(int32_t n);
    ~OwnThreads();
    OwnThreads(const OwnThreads &) = delete;
    OwnThreads & operator=(const OwnThreads &) = delete;

    static int32_t n_running();

    using Mark = uint64_t;
    static Mark mark();
    // True if any worked at any time since the mark.
    static bool ran_since(Mark mark);

private:
    const int32_t n_;
};

// Threads of a pass that spin for one another while other programs have their cores make it dozens of
// times slower than one thread would be. This notices, when it happens twice in a row, and has the
// next passes run on one.
class BusyMachineGuard {
public:
    // How many of n_threads to use for the next pass.
    int32_t limit(int32_t n_threads);

    // A pass took this long on more than one thread, each of which was that long without a core, on average.
    void note_pass(int64_t microseconds, int64_t without_core);

private:
    static constexpr int32_t first_pause = 16;
    static constexpr int32_t longest_pause = 1024;

    int32_t pause_ = first_pause;  // passes on one thread before several are tried again
    int32_t left_ = 0;
    int32_t n_clean_ = 0;  // passes in a row that kept their cores
    int32_t n_busy_ = 0;   // and that lost them
};

}  // namespace eliza
