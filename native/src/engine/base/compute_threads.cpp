#include "engine/base/compute_threads.h"

#include <algorithm>
#include <iterator>

#include "platform/machine.h"

namespace eliza {

ComputeThreads::ComputeThreads(int32_t n_threads, BusyMachineGuard & guard)
    : guard_(guard),
      option_(n_threads),
      // More threads than CPUs would only spin while they wait for one another.
      size_(startable_thread_count(n_threads == 0 ? usable_core_count() : std::min(n_threads, usable_cpu_count()))) {
    const std::vector<int32_t> before = all_threads();
    ggml_threadpool_params params = ggml_threadpool_params_default(size_);
    // After a pass, the threads spin for a few milliseconds (131,072 pause instructions), because waking them for the
    // next pass takes time. A higher value would take cores from the other models of the process.
    params.poll = 1;
    pool_.reset(ggml_threadpool_new(&params));
    const std::vector<int32_t> after = all_threads();
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(ids_));
    if (ids_.size() + 1 != static_cast<size_t>(size_)) {
        ids_.clear();  // other threads were started at the same time: measure the calling thread only
    }
    has_guard_ = microseconds_without_core(ids_) >= 0;
}

void ComputeThreads::enter() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t mine = n_asked_++;
    next_turn_.wait(lock, [&] { return n_served_ == mine; });
}

void ComputeThreads::leave() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++n_served_;
    }
    next_turn_.notify_all();
}

int32_t ComputeThreads::choose(uint64_t n_products) {
    if (option_ != 0) {
        return size_;
    }
    const int32_t useful = useful_thread_count(size_, n_products, has_guard_);
    return std::min(guard_.limit(useful, llama_time_us()), std::max(1, size_ - OwnThreads::n_running()));
}

ComputeThreads::Turn::Turn(ComputeThreads & threads, uint64_t n_products) : threads_(threads) {
    threads_.enter();
    n_threads_ = threads_.choose(n_products);
}

ComputeThreads::Turn::Turn(ComputeThreads & threads, llama_context * context, uint64_t n_products)
    : Turn(threads, n_products) {
    llama_set_n_threads(context, n_threads_, n_threads_);
}

void ComputeThreads::Turn::watch() {
    const int64_t now = llama_time_us();
    if (threads_.option_ == 0 && n_threads_ > 1 && threads_.has_guard_ && threads_.guard_.is_due(now)) {
        own_threads_ = OwnThreads::mark();
        without_core_us_ = microseconds_without_core(threads_.ids_);
        start_us_ = without_core_us_ < 0 ? 0 : now;
    }
}

ComputeThreads::Turn::~Turn() {
    try {
        note_pass();
    } catch (...) {  // no memory: the next passes are measured
    }
    threads_.leave();
}

void ComputeThreads::Turn::note_pass() {
    if (start_us_ == 0 || OwnThreads::ran_since(own_threads_)) {
        return;
    }
    const int64_t without_core_us = microseconds_without_core(threads_.ids_), now = llama_time_us();
    if (without_core_us >= 0) {
        const int64_t waited = without_core_us - without_core_us_;
        threads_.guard_.note_pass(now, now - start_us_, waited / static_cast<int64_t>(threads_.ids_.size() + 1));
    }
}

}  // namespace eliza
