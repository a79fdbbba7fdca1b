#include "engine/pass/compute_threads.h"

#include <algorithm>
#include <iterator>

#include "platform/machine.h"

namespace eliza {

ComputeThreads::ComputeThreads(int32_t n_threads)
    : option_(n_threads),
      // More threads than CPUs would only spin while they wait for one another.
      size_(startable_thread_count(n_threads == 0 ? usable_core_count() : std::min(n_threads, usable_cpu_count()))) {
    const std::vector<int32_t> before = all_threads();
    ggml_threadpool_params params = ggml_threadpool_params_default(size_);
    params.poll = 0;  // no spinning between passes: streams need the cores to choose their next tokens
    pool_.reset(ggml_threadpool_new(&params));
    const std::vector<int32_t> after = all_threads();
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(ids_));
    if (ids_.size() + 1 != static_cast<size_t>(size_)) {
        ids_.clear();  // other threads were started at the same time: measure the calling thread only
    }
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

int32_t ComputeThreads::choose(uint64_t n_weights, size_t n_tokens) {
    if (option_ != 0) {
        return size_;
    }
    const int32_t useful = useful_thread_count(size_, n_weights, static_cast<int32_t>(n_tokens));
    return std::min(busy_guard_.limit(useful), std::max(1, size_ - OwnThreads::n_running()));
}

ComputeThreads::Turn::Turn(ComputeThreads & threads, uint64_t n_weights, size_t n_tokens) : threads_(threads) {
    threads_.enter();
    n_threads_ = threads_.choose(n_weights, n_tokens);
}

ComputeThreads::Turn::Turn(ComputeThreads & threads, llama_context * context, uint64_t n_weights, size_t n_tokens)
    : Turn(threads, n_weights, n_tokens) {
    llama_set_n_threads(context, n_threads_, n_threads_);
}

void ComputeThreads::Turn::watch() {
    constexpr int64_t interval_us = 10000;
    const int64_t now = llama_time_us();
    if (threads_.option_ == 0 && n_threads_ > 1 && now - threads_.last_watch_us_ >= interval_us) {
        own_threads_ = OwnThreads::mark();
        without_core_us_ = microseconds_without_core(threads_.ids_);
        start_us_ = threads_.last_watch_us_ = now;
    }
}

ComputeThreads::Turn::~Turn() {
    if (start_us_ > 0 && !OwnThreads::ran_since(own_threads_)) {
        const int64_t waited = microseconds_without_core(threads_.ids_) - without_core_us_;
        threads_.busy_guard_.note_pass(llama_time_us() - start_us_,
                                       waited / static_cast<int64_t>(threads_.ids_.size() + 1));
    }
    threads_.leave();
}

}  // namespace eliza
