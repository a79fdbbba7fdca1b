#include "log.h"

#include <cstring>
#include <mutex>
#include <new>

#include "ggml-backend.h"
#include "llama.h"
#include "platform/cpu_instructions.h"

namespace eliza {
namespace {

std::mutex callback_mutex;
eliza_log_callback user_callback = nullptr;
void * user_data = nullptr;

thread_local bool capturing = false;
thread_local std::string captured_error;
thread_local bool ran_out_of_memory = false;

LogLevel level_of(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR: return LogLevel::error;
        case GGML_LOG_LEVEL_WARN: return LogLevel::warning;
        case GGML_LOG_LEVEL_INFO: return LogLevel::info;
        default: return LogLevel::debug;
    }
}

// llama.cpp logs in destructors, too, where nothing may be thrown: without memory for it a line is lost.
void receive_llama_log(ggml_log_level level, const char * text, void *) noexcept {
    try {
        if (capturing && level == GGML_LOG_LEVEL_ERROR) {
            for (const char * words : {"bad_alloc", "failed to allocate", "insufficient memory"}) {
                ran_out_of_memory = ran_out_of_memory || std::strstr(text, words) != nullptr;
            }
            // The first says what was wrong, those after it what could not be done therefore.
            if (captured_error.empty()) {
                captured_error = text;
                captured_error.resize(captured_error.find_last_not_of('\n') + 1);
            }
        }
        log(level_of(level), text);
    } catch (const std::bad_alloc &) {
        ran_out_of_memory = true;
    }
}

}  // namespace

void set_log_callback(eliza_log_callback callback, void * user) {
    const std::lock_guard<std::mutex> lock(callback_mutex);
    user_callback = callback;
    user_data = user;
}

void log(LogLevel level, const std::string & text) {
    eliza_log_callback callback;
    void * user;
    {
        // Not held during the call, so that a callback may log or replace itself.
        const std::lock_guard<std::mutex> lock(callback_mutex);
        callback = user_callback;
        user = user_data;
    }
    if (callback != nullptr) {
        callback(static_cast<int>(level), text.c_str(), user);
    }
}

LlamaErrorCapture::LlamaErrorCapture() {
    capturing = true;
    captured_error.clear();
    ran_out_of_memory = false;
}

LlamaErrorCapture::~LlamaErrorCapture() { capturing = false; }

Error LlamaErrorCapture::error(eliza_status status, const std::string & text) const {
    return {ran_out_of_memory ? ELIZA_ERR_OOM : status, text + (ran_out_of_memory ? ": out of memory" : "") +
                                                            (captured_error.empty() ? "" : ": " + captured_error)};
}

void init_backend() {
    // Not std::call_once: with the compiler's runtime linked in, what is thrown there ends the process.
    [[maybe_unused]] static const bool is_done = [] {
        check_cpu();  // before ggml computes its first table
        llama_log_set(receive_llama_log, nullptr);
        llama_backend_init();
        return true;
    }();
}

}  // namespace eliza
