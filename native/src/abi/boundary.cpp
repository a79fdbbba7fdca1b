#include "abi/boundary.h"

#include <cstdlib>
#include <cstring>

namespace eliza {

void CallGate::enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_closed_) {
        throw invalid_argument("the stream is closed, or its handle is invalid");
    }
    if (caller_ != std::thread::id()) {
        throw invalid_argument("another call is running on this stream");
    }
    caller_ = std::this_thread::get_id();
}

void CallGate::leave() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        caller_ = std::thread::id();
    }
    idle_.notify_all();
}

bool CallGate::close() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (caller_ == std::this_thread::get_id()) {
        return false;
    }
    idle_.wait(lock, [&] { return caller_ == std::thread::id(); });
    is_closed_ = true;
    return true;
}

void StreamEntry::cancel() {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (stream != nullptr) {
        stream->cancel();
    }
}

void StreamEntry::close() {
    cancel();
    if (gate.close()) {
        const std::lock_guard<std::mutex> lock(stream_mutex_);
        stream.reset();
    }
}

void StreamEntry::set_last_error(const std::string & text) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    error_ = text;
}

std::string StreamEntry::last_error() {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    return error_;
}

// Static objects as described in platform/process.h.
static auto & all_contexts = *new HandleTable<InferenceContext, EliInferenceContext>;
static auto & all_streams = *new HandleTable<StreamEntry, EliLlmStream>;

HandleTable<InferenceContext, EliInferenceContext> & contexts() { return all_contexts; }

HandleTable<StreamEntry, EliLlmStream> & streams() { return all_streams; }

char * new_c_string(const std::string & text) {
    char * copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (copy != nullptr) {
        std::memcpy(copy, text.c_str(), text.size() + 1);
    }
    return copy;
}

namespace {

thread_local eliza_status status_of_last_error = ELIZA_OK;

eliza_status read_current_error(std::string & text) noexcept {
    try {
        try {
            throw;
        } catch (const Error & error) {
            text = error.what();
            return error.status();
        } catch (const std::bad_alloc &) {
            text = "out of memory";
            return ELIZA_ERR_OOM;
        } catch (const std::exception & error) {
            text = error.what();
            return ELIZA_ERR_FFI_FAULT;
        } catch (...) {
            text = "unknown failure";
            return ELIZA_ERR_FFI_FAULT;
        }
    } catch (...) {  // not enough memory for the message
        return ELIZA_ERR_OOM;
    }
}

}  // namespace

eliza_status current_error(std::string & text) noexcept {
    status_of_last_error = read_current_error(text);
    return status_of_last_error;
}

eliza_status last_status() noexcept { return status_of_last_error; }

std::shared_ptr<InferenceContext> require_context(EliInferenceContext * handle) {
    return require_object(contexts(), handle, "the context is NULL",
                          "the context is destroyed, or its handle is invalid");
}

std::shared_ptr<StreamEntry> require_stream(EliLlmStream * handle) {
    return require_object(streams(), handle, "the stream is NULL", "the stream is closed, or its handle is invalid");
}

}  // namespace eliza
