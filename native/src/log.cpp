#include "log.h"

#include <cstring>
#include <mutex>
#include <new>

#include "ggml-backend.h"
#include "llama.h"
#include "platform/cpu_instructions.h"
#include "platform/lazy_buffers.h"
#include "platform/process.h"

namespace eliza {
namespace {

GlobalMutex callback_mutex;
eliza_log_callback user_callback = nullptr;
void * user_data = nullptr;

thread_local LlamaErrorCapture * innermost_capture = nullptr;

LogLevel level_of(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR: return LogLevel::error;
        case GGML_LOG_LEVEL_WARN: return LogLevel::warning;
        case GGML_LOG_LEVEL_INFO: return LogLevel::info;
        default: return LogLevel::debug;
    }
}

// llama.cpp also logs in destructors, which must not throw. If there is no memory for a line, the line is lost.
void receive_llama_log(ggml_log_level level, const char * text, void *) noexcept {
    try {
        const LogLevel own_level = level_of(level);
        log(innermost_capture != nullptr ? innermost_capture->note(own_level, text) : own_level, text);
    } catch (const std::bad_alloc &) {
        if (innermost_capture != nullptr) {
            innermost_capture->note_no_memory();
        }
    }
}

}  // namespace

void set_log_callback(eliza_log_callback callback, void * user) {
    const std::lock_guard<GlobalMutex> lock(callback_mutex);
    user_callback = callback;
    user_data = user;
}

void log(LogLevel level, const std::string & text) {
    eliza_log_callback callback;
    void * user;
    {
        // Not held during the call, so that the callback may log or replace itself.
        const std::lock_guard<GlobalMutex> lock(callback_mutex);
        callback = user_callback;
        user = user_data;
    }
    if (callback == nullptr) {
        return;
    }
    try {
        callback(static_cast<int>(level), text.c_str(), user);
    } catch (...) {  // A C++ program's callback may throw. Its line is lost; the call that logged it continues.
    }
}

LlamaErrorCapture::LlamaErrorCapture(bool failure_is_usual)
    : outer_(innermost_capture), failure_is_usual_(failure_is_usual) {
    innermost_capture = this;
}

LlamaErrorCapture::~LlamaErrorCapture() { innermost_capture = outer_; }

LogLevel LlamaErrorCapture::note(LogLevel level, const char * text) {
    if (level == LogLevel::error) {
        for (const char * words : {"bad_alloc", "failed to allocate", "insufficient memory"}) {
            ran_out_of_memory_ = ran_out_of_memory_ || std::strstr(text, words) != nullptr;
        }
        // The first line gives the reason; later lines name its consequences.
        if (first_error_.empty()) {
            first_error_ = text;
            first_error_.resize(first_error_.find_last_not_of('\n') + 1);
        }
    }
    const LogLevel outer_level = outer_ != nullptr ? outer_->note(level, text) : level;
    return failure_is_usual_ && level >= LogLevel::warning ? LogLevel::debug : outer_level;
}

Error LlamaErrorCapture::error(eliza_status status, const std::string & text) const {
    return {ran_out_of_memory_ ? ELIZA_ERR_OOM : status,
            text + (ran_out_of_memory_ ? ": out of memory" : "") + (first_error_.empty() ? "" : ": " + first_error_)};
}

void init_backend() {
    // Not std::call_once: with a statically linked compiler runtime, an exception thrown inside it ends the process.
    [[maybe_unused]] static const bool is_done = [] {
        check_cpu();  // before ggml computes its first table
        llama_log_set(receive_llama_log, nullptr);
        llama_backend_init();
        clear_buffers_lazily();
        return true;
    }();
}

}  // namespace eliza
