// Where log lines go: nowhere, or to the one callback a program has set.
#pragma once

#include <string>

#include "eliza/eliza_inference.h"
#include "error.h"

namespace eliza {

enum class LogLevel : int { debug = 1, info = 2, warning = 3, error = 4 };

void set_log_callback(eliza_log_callback callback, void * user);
void log(LogLevel level, const std::string & text);

// While one lives, keeps the first error that llama.cpp logged on this thread: its functions say
// "NULL", its log says why.
class LlamaErrorCapture {
public:
    LlamaErrorCapture();
    ~LlamaErrorCapture();
    LlamaErrorCapture(const LlamaErrorCapture &) = delete;
    LlamaErrorCapture & operator=(const LlamaErrorCapture &) = delete;

    // What to throw: `text` and, where one was logged, that error. Where llama.cpp logged that it ran out of memory,
    // that is the status, whatever `status` says.
    Error error(eliza_status status, const std::string & text) const;
};

// Starts llama.cpp once per process, its log in our hands. Throws Error on a CPU that it was not compiled for.
void init_backend();

}  // namespace eliza
