// The number of threads for a forward pass.
#pragma once

#include <cstdint>
#include "platform/process.h"

namespace eliza {

// Returns how many of n_threads threads can run at the same time, including the calling thread. The system may allow
// fewer than n_threads, and ggml aborts the process if a thread does not start.
int32_t startable_thread_count(int32_t n_threads);

// Returns how many of n_threads threads to use for a computation with n_products multiplications (Model::n_products).
// After every operation of the graph, the threads spin until all of them are ready. If a thread has less than about
// 0.3 ms of work, this waiting takes longer than the time that the thread saves. If it is unknown whether other
// programs occupy the cores (has_guard is false), a thread gets at least ten times as much work.
int32_t useful_thread_count(int32_t n_threads, uint64_t n_products, bool has_guard);

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
// dozens of times as long as on one thread. After two such passes in a row, this class limits passes to one thread, for
// 20 times as long as they took. It then tries several threads again, so a busy machine loses about a twentieth of its
// time to these trials. Safe from any thread.
class BusyMachineGuard {
public:
    // The guard that all contexts of this process share, because the machine is the same for all of them.
    static BusyMachineGuard & of_process();

    // Returns how many of n_threads threads to use for a pass that begins at now_us (llama_time_us).
    int32_t limit(int32_t n_threads, int64_t now_us) const;

    // Returns whether to measure the pass that begins at now_us. Measuring reads files, which takes about 0.1 ms. So
    // one pass in 100 ms is measured, and each pass after one that lost its cores, until a pass keeps them.
    bool is_due(int64_t now_us);

    // Records a pass on more than one thread that ended at now_us: its duration in microseconds, and how long its
    // threads had no core on average.
    void note_pass(int64_t now_us, int64_t duration, int64_t without_core);

private:
    mutable GlobalMutex mutex_;
    int64_t measured_us_ = 0;  // when the last measured pass began
    int64_t busy_us_ = 0;      // duration of the last passes in a row that lost their cores
    bool is_busy_ = false;     // true after a pause, until a pass keeps its cores
    int64_t pause_end_us_ = 0;
};

}  // namespace eliza
