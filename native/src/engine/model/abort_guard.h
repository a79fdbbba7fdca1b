// llama.cpp ends the process where an assertion fails. Many of its assertions are about a model's file, and fail while
// the model is loaded or its first graph is built, on the thread that asked: there one can be an error instead.
#pragma once

namespace eliza {

// While one is alive, an assertion that fails on this thread throws std::runtime_error with its text, through
// llama.cpp, which catches it where models are loaded and contexts are made. On other threads, such as those that
// compute, and elsewhere it ends the process, as ever.
//
// What ggml holds in C is compiled with unwind tables (the default of Linux on x86-64 and Arm, of macOS, and
// -fexceptions); its memory is lost where it is thrown through.
class AbortGuard {
public:
    AbortGuard() noexcept;
    ~AbortGuard();
    AbortGuard(const AbortGuard &) = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;
};

}  // namespace eliza
