// The threads of a context: one ggml thread pool for its forward passes, its drafters and its embeddings.
//
// Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/threads.h"
#include "ggml-cpu.h"
#include "llama.h"
#include "platform/process.h"

namespace eliza {

class ComputeThreads {
public:
    // `n_threads` is the option n_threads; 0 chooses the number of threads for each computation by its size. If the
    // system cannot start enough threads, there are fewer.
    explicit ComputeThreads(int32_t n_threads, BusyMachineGuard & guard = BusyMachineGuard::of_process());
    ComputeThreads(const ComputeThreads &) = delete;
    ComputeThreads & operator=(const ComputeThreads &) = delete;

    int32_t option() const { return option_; }
    int32_t size() const { return size_; }
    ggml_threadpool * pool() const { return pool_.get(); }

    // Makes a context compute with these threads. Each of its computations needs a Turn.
    void attach_to(llama_context * context) const { llama_attach_threadpool(context, pool_.get(), pool_.get()); }

    // The exclusive right to compute, for the lifetime of the object. Turns are granted in the order of the requests.
    class Turn {
    public:
        // Waits for a turn, and chooses the number of threads for a computation with n_products multiplications.
        Turn(ComputeThreads & threads, uint64_t n_products);
        // The same, and sets the number of threads of a context that uses this pool.
        Turn(ComputeThreads & threads, llama_context * context, uint64_t n_products);
        ~Turn();
        Turn(const Turn &) = delete;
        Turn & operator=(const Turn &) = delete;

        int32_t n_threads() const { return n_threads_; }

        // Measures, from now to the end of this turn, how long other programs occupy the cores, if a measurement is
        // due. Later turns use one thread if that is too long (see BusyMachineGuard).
        void watch();

    private:
        void note_pass();

        const WorkBeforeExit work_;
        ComputeThreads & threads_;
        int32_t n_threads_ = 1;
        int64_t start_us_ = 0;  // when watch() was called; 0 = it was not
        int64_t without_core_us_ = 0;
        OwnThreads::Mark own_threads_;
    };

private:
    struct PoolDeleter {
        void operator()(ggml_threadpool * pool) { ggml_threadpool_free(pool); }
    };

    void enter();
    void leave();
    int32_t choose(uint64_t n_products);

    BusyMachineGuard & guard_;
    const int32_t option_;
    const int32_t size_;
    bool has_guard_ = false;    // whether the system tells how long threads had no core
    std::vector<int32_t> ids_;  // thread ids of the pool, without the calling thread; empty if unknown
    std::unique_ptr<ggml_threadpool, PoolDeleter> pool_;

    std::mutex mutex_;  // guards the next three
    std::condition_variable next_turn_;
    uint64_t n_asked_ = 0, n_served_ = 0;
};

}  // namespace eliza
