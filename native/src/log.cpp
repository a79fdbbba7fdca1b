#include "log.h"

#include <mutex>

#include "ggml-backend.h"
#include "llama.h"

namespace eliza {
namespace {

std::mutex callback_mutex;
eliza_log_callback user_callback = nullptr;
void * user_data = nullptr;

thread_local bool capturing = false;
thread_local std::string captured_error;

LogLevel level_of(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR: return LogLevel::error;
        case GGML_LOG_LEVEL_WARN: return LogLevel::warning;
        case GGML_LOG_LEVEL_INFO: return LogLevel::info;
        default: return LogLevel::debug;
    }
}

void receive_llama_log(ggml_log_level level, const char * text, void *) {
    if (capturing && level == GGML_LOG_LEVEL_ERROR) {
        captured_error = text;
        while (!captured_error.empty() && captured_error.back() == '\n') {
            captured_error.pop_back();
        }
    }
    log(level_of(level), text);
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
}

LlamaErrorCapture::~LlamaErrorCapture() { capturing = false; }

std::string LlamaErrorCapture::suffix() const { return captured_error.empty() ? "" : ": " + captured_error; }

void init_backend() {
    static std::once_flag once;
    std::call_once(once, [] {
        llama_log_set(receive_llama_log, nullptr);
        llama_backend_init();
    });
}

}  // namespace eliza
