#pragma once

#include <cstdint>

#include "llama.h"

namespace eliza {

// Adds the time it lives to a count of microseconds.
class Stopwatch {
public:
    explicit Stopwatch(int64_t & microseconds) : microseconds_(microseconds), start_(llama_time_us()) {}
    ~Stopwatch() { microseconds_ += llama_time_us() - start_; }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch & operator=(const Stopwatch &) = delete;

private:
    int64_t & microseconds_;
    int64_t start_;
};

}  // namespace eliza
