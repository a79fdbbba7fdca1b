// Where log lines go: nowhere, or to the one callback a program has set.
#pragma once

#include <string>

#include "eliza/eliza_inference.h"

namespace eliza {

enum class LogLevel : int { debug = 1, info = 2, warning = 3, error = 4 };

void set_log_callback(eliza_log_callback callback, void * user);
void log(LogLevel level, const std::string & text);

// While one lives, keeps the last error that llama.cpp logged on this thread: its functions say
// "NULL", its log says why.
class LlamaErrorCapture {
public:
    LlamaErrorCapture();
    ~LlamaErrorCapture();
    LlamaErrorCapture(const LlamaErrorCapture &) = delete;
    LlamaErrorCapture & operator=(const LlamaErrorCapture &) = delete;

    // ": " and the error on one line, or "" if none was logged.
    std::string suffix() const;
};

// Starts llama.cpp once per process, its log in our hands.
void init_backend();

}  // namespace eliza
