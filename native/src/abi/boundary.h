// The border between C callers and the engine: handles in, exceptions stopped, errors out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "abi/handles.h"
#include "eliza/eliza_inference.h"
#include "engine/inference_context.h"
#include "engine/stream/stream.h"
#include "error.h"

namespace eliza {

// Lets one call at a time into a stream.
class CallGate {
public:
    // Throws Error when a call is running, or none may any more.
    void enter();
    void leave();

    // Waits until no call is running; from then on none may. False from inside one: there it returns at once.
    bool close();

private:
    std::mutex mutex_;
    std::condition_variable idle_;
    std::thread::id caller_;  // of the running call; no thread when none runs
    bool is_closed_ = false;
};

struct StreamEntry {
    std::shared_ptr<Stream> stream;  // until close(); used by whoever is inside the gate
    EliInferenceContext * context;
    CallGate gate;

    // Safe from any thread, as is the next.
    void cancel();

    // Cancels the call that runs and waits for its end; afterwards the stream is gone, whoever holds the entry.
    // From inside one of its calls, once that has ended.
    void close();

    void set_last_error(const std::string & text);
    std::string last_error();

private:
    std::mutex stream_mutex_;  // against a cancel while the stream goes
    std::mutex error_mutex_;
    std::string error_;
};

HandleTable<InferenceContext, EliInferenceContext> & contexts();
HandleTable<StreamEntry, EliLlmStream> & streams();

// A heap copy for the caller, freed with eliza_inference_free_string(). NULL when memory is out.
char * new_c_string(const std::string & text);

// Turns the exception being handled into a status and a text, and keeps the status as this thread's last one.
eliza_status current_error(std::string & text) noexcept;

// The status of the last call that failed on this thread.
eliza_status last_status() noexcept;

inline void report(char ** err, const std::string & text) {
    if (err != nullptr) {
        *err = new_c_string(text);
    }
}

// Runs `body`, which returns an int, and turns what it throws into a status and *err.
template <typename Body>
int guarded(char ** err, Body body) noexcept {
    try {
        return body();
    } catch (...) {
        std::string text;
        const eliza_status status = current_error(text);
        report(err, text);
        return status;
    }
}

inline void require(bool condition, const char * what) {
    if (!condition) {
        throw invalid_argument(what);
    }
}

// The object of a handle, or an Error: `if_null` or `if_unknown`.
template <typename Object, typename Handle>
std::shared_ptr<Object> require_object(const HandleTable<Object, Handle> & table, Handle * handle, const char * if_null,
                                       const char * if_unknown) {
    auto object = table.find(handle);
    if (object == nullptr && table.is_of_parent(handle)) {
        throw invalid_argument(
            "the handle belongs to the process that this one was forked from: open the model in this process");
    }
    require(object != nullptr, handle == nullptr ? if_null : if_unknown);
    return object;
}

std::shared_ptr<InferenceContext> require_context(EliInferenceContext * handle);
std::shared_ptr<StreamEntry> require_stream(EliLlmStream * handle);

// Runs `body(InferenceContext &)` on a live context.
template <typename Body>
int with_context(EliInferenceContext * handle, char ** err, Body body) noexcept {
    return guarded(err, [&] { return body(*require_context(handle)); });
}

// Runs `body(Stream &)` as the one call on a live stream, and keeps its error for last_error.
template <typename Body>
int with_stream(EliLlmStream * handle, char ** err, Body body) noexcept {
    return guarded(err, [&] {
        const std::shared_ptr<StreamEntry> entry = require_stream(handle);
        try {
            entry->gate.enter();
            struct Leave {
                CallGate & gate;
                ~Leave() { gate.leave(); }
            } leave{entry->gate};
            return body(*entry->stream);
        } catch (...) {
            std::string text;
            const eliza_status status = current_error(text);
            entry->set_last_error(text);
            throw Error(status, text);
        }
    });
}

// An out parameter that may be NULL.
template <typename T, typename Value>
void write_if_asked(T * out, const Value & value) noexcept {
    if (out != nullptr) {
        *out = static_cast<T>(value);
    }
}

// A caller's text. A length that cannot be meant is refused before anything is read.
inline std::string_view require_text(const char * text, size_t len, const char * what) {
    require(text != nullptr, (std::string(what) + " is NULL").c_str());
    if (len > INT32_MAX) {
        throw invalid_argument(std::string(what) + " of " + std::to_string(len) + " bytes is too long");
    }
    return {text, len};
}

}  // namespace eliza
