// The log: lines go to the callback that the program has set, or nowhere.
#pragma once

#include <string>

#include "eliza/eliza_inference.h"
#include "error.h"

namespace eliza {

enum class LogLevel : int { debug = 1, info = 2, warning = 3, error = 4 };

void set_log_callback(eliza_log_callback callback, void * user);
void log(LogLevel level, const std::string & text);

// Keeps the first error that llama.cpp logs on this thread during the object's lifetime. llama.cpp's functions return
// NULL on failure, and only its log gives the reason. Captures may be nested; each keeps its own first error.
class LlamaErrorCapture {
public:
    // `failure_is_usual`: llama.cpp's warnings and errors are logged as debug lines, because the caller tries again.
    explicit LlamaErrorCapture(bool failure_is_usual = false);
    ~LlamaErrorCapture();
    LlamaErrorCapture(const LlamaErrorCapture &) = delete;
    LlamaErrorCapture & operator=(const LlamaErrorCapture &) = delete;

    // Takes note of a line. Returns the level at which to log it.
    LogLevel note(LogLevel level, const char * text);
    void note_no_memory() { ran_out_of_memory_ = true; }

    // Returns the Error to throw: `text`, followed by the captured error, if any. If llama.cpp logged that it ran out
    // of memory, the status is ELIZA_ERR_OOM instead of `status`.
    Error error(eliza_status status, const std::string & text) const;

private:
    LlamaErrorCapture * const outer_;
    const bool failure_is_usual_;
    std::string first_error_;
    bool ran_out_of_memory_ = false;
};

// Starts llama.cpp once per process and redirects its log. Throws an Error on a CPU that the library was not compiled
// for.
void init_backend();

}  // namespace eliza
