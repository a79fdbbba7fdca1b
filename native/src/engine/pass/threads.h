// The number of threads for a forward pass.
#pragma once

#include <cstdint>

namespace eliza {

// Returns how many of n_threads threads can run at the same time, including the calling thread. The system may allow
// fewer than n_threads, and ggml aborts the process if a thread does not start.
int32_t startable_thread_count(int32_t n_threads);

// Returns how many of n_threads threads to use for a pass over n_tokens tokens. After every operation of the graph, the
// threads spin until all of them are ready. If a pass is less than about 5 ms of work for one core, this waiting takes
// longer than the time that more threads save. On a busy machine, it takes a hundred times longer.
int32_t useful_thread_count(int32_t n_threads, uint64_t n_params, int32_t n_tokens);

// Threads of this library that work at the same time as passes, for example to tokenize labels. Passes leave cores free
// for these threads, and do not mistake their work for the work of other programs.
class OwnThreads {
public:
    // Registers n working threads until the object is destroyed.
    explicit OwnThreads(int32_t n);
    ~OwnThreads();
    OwnThreads(const OwnThreads &) = delete;
    OwnThreads & operator=(const OwnThreads &) = delete;

    // Returns the number of registered threads.
    static int32_t n_running();

    using Mark = uint64_t;
    // Marks this moment for ran_since().
    static Mark mark();
    // Returns whether a registered thread worked at any time since the mark.
    static bool ran_since(Mark mark);

private:
    const int32_t n_;
};

// If other programs occupy the cores, the threads of a pass spin while they wait for one another. The pass then takes
// dozens of times as long as on one thread. After two such passes in a row, this class limits the next passes to one
// thread.
class BusyMachineGuard {
public:
    // Returns how many of n_threads threads to use for the next pass.
    int32_t limit(int32_t n_threads);

    // Records the duration of a pass on more than one thread, and how long its threads had no core on average.
    void note_pass(int64_t microseconds, int64_t without_core);

private:
    static constexpr int32_t first_pause = 16;
    static constexpr int32_t longest_pause = 1024;

    int32_t pause_ = first_pause;  // passes on one thread before several threads are tried again
    int32_t left_ = 0;             // passes of the pause that are left
    int32_t n_clean_ = 0;          // passes in a row that kept their cores
    int32_t n_busy_ = 0;           // passes in a row that lost them
};

}  // namespace eliza
