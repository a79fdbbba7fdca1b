#pragma once

#include <chrono>
#include <cstdint>

namespace eliza {

// Adds its own lifetime to a counter of nanoseconds.
class Stopwatch {
public:
    explicit Stopwatch(int64_t & nanoseconds) : nanoseconds_(nanoseconds), start_(Clock::now()) {}
    ~Stopwatch() { nanoseconds_ += std::chrono::nanoseconds(Clock::now() - start_).count(); }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch & operator=(const Stopwatch &) = delete;

private:
    using Clock = std::chrono::steady_clock;

    int64_t & nanoseconds_;
    Clock::time_point start_;
};

}  // namespace eliza
