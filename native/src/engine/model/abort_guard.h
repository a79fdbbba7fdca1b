// llama.cpp ends the process when an assertion fails. Many of its assertions check a model's file. They run on the
// calling thread, while the model is loaded or its first graph is built, so their failures can be turned into errors.
#pragma once

namespace eliza {

// While an object exists, a failed assertion on this thread throws std::runtime_error with its text. The exception
// passes through llama.cpp, which catches it when it loads models or creates contexts. On other threads, such as
// compute threads, a failed assertion still ends the process.
//
// The C parts of ggml must be compiled with unwind tables (the default on Linux for x86-64 and Arm, and on macOS;
// otherwise -fexceptions). Memory that they hold is leaked when an exception passes through.
class AbortGuard {
public:
    AbortGuard() noexcept;
    ~AbortGuard();
    AbortGuard(const AbortGuard &) = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;
};

}  // namespace eliza
