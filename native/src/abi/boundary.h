// The boundary between C callers and the engine: it resolves handles, catches exceptions and reports errors.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "abi/handles.h"
#include "eliza/eliza_inference.h"
#include "engine/inference_context.h"
#include "engine/stream/stream.h"
#include "error.h"
#include "json_input.h"

namespace eliza {

// Allows one call at a time into a stream.
class CallGate {
public:
    // Throws an Error if a call is running or the gate is closed.
    void enter();
    void leave();

    // Waits for the running call, then closes the gate for good. From inside the running call it returns false at once.
    bool close();

private:
    std::mutex mutex_;
    std::condition_variable idle_;
    std::thread::id caller_;  // the thread of the running call, or no thread
    bool is_closed_ = false;
};

struct StreamEntry {
    std::shared_ptr<Stream> stream;  // until close(); used only inside the gate
    EliInferenceContext * context;
    CallGate gate;

    // cancel() and close() are safe from any thread.
    void cancel();

    // Cancels the running call, waits for it to end, and destroys the stream, even if others still hold this entry. If
    // called from inside a call of the stream itself, the stream is destroyed after that call ends.
    void close();

    void set_last_error(const std::string & text);
    std::string last_error();

private:
    std::mutex stream_mutex_;  // keeps cancel() from using a stream that is being destroyed
    std::mutex error_mutex_;
    std::string error_;
};

HandleTable<InferenceContext, EliInferenceContext> & contexts();
HandleTable<StreamEntry, EliLlmStream> & streams();

// Returns a heap copy, which the caller frees with eliza_inference_free_string(). NULL if memory is exhausted.
char * new_c_string(const std::string & text);

// Turns the exception that is being handled into a status and a message, and stores the status for last_status().
eliza_status current_error(std::string & text) noexcept;

// Returns the status of the last failed call on this thread.
eliza_status last_status() noexcept;

inline void report(char ** err, const std::string & text) {
    if (err != nullptr) {
        *err = new_c_string(text);
    }
}

// Runs `body`, and turns its exceptions into a status and *err. A body that returns nothing succeeds with ELIZA_OK.
template <typename Body>
int guarded(char ** err, Body body) noexcept {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return ELIZA_OK;
        } else {
            return body();
        }
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

// Returns the object of a handle. Throws an Error with the text `if_null` or `if_unknown`.
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

// Checks a caller's configuration; NULL means the defaults. Throws Error.
InferenceContext::OpenRequest read_config(const eliza_llm_stream_config_t * cfg);

// Opens a stream and returns its handle. Throws Error.
EliLlmStream * open_stream(EliInferenceContext * ctx, InferenceContext::OpenRequest request);

std::shared_ptr<InferenceContext> require_context(EliInferenceContext * handle);
std::shared_ptr<StreamEntry> require_stream(EliLlmStream * handle);

// Runs `body(InferenceContext &)` on an open context.
template <typename Body>
int with_context(EliInferenceContext * handle, char ** err, Body body) noexcept {
    return guarded(err, [&] { return body(*require_context(handle)); });
}

// Runs `body(Stream &)` as the only call on an open stream, and keeps its error for last_error.
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

// Writes as many bytes of the statistics as the caller's struct has.
inline void write_stats(const Stream & stream, eliza_llm_stream_stats_t * stats, size_t sizeof_stats) {
    const eliza_llm_stream_stats_t all = stream.stats();
    std::memcpy(stats, &all, std::min(sizeof_stats, sizeof all));
}

// Writes an output parameter that may be NULL.
template <typename T, typename Value>
void write_if_asked(T * out, const Value & value) noexcept {
    if (out != nullptr) {
        *out = static_cast<T>(value);
    }
}

// Throws an Error if the caller's buffer of `cap` elements is too small for n of them.
inline void require_room(const char * cap_name, uint64_t n, const char * elements, uint64_t cap) {
    if (cap < n) {
        throw invalid_argument(std::string(cap_name) + ": expected room for " + std::to_string(n) + " " + elements +
                               ", got " + std::to_string(cap));
    }
}

// Returns a caller's text. Rejects an implausible length before anything is read.
inline std::string_view require_text(const char * text, size_t len, const char * what) {
    require(text != nullptr, (std::string(what) + " is NULL").c_str());
    if (len > INT32_MAX) {
        throw invalid_argument(std::string(what) + " of " + std::to_string(len) + " bytes is too long");
    }
    return {text, len};
}

// Copies a caller's array of texts. Rejects an implausible length before anything is read.
inline std::vector<std::string> require_texts(const char * const * texts, uint64_t n, const char * what) {
    if (n > INT32_MAX) {
        throw invalid_argument(std::to_string(n) + " " + what + " are more than " + std::to_string(INT32_MAX));
    }
    std::vector<std::string> copied;
    copied.reserve(n);
    for (size_t i = 0; i < n; ++i) {
        if (texts[i] == nullptr) {
            throw invalid_argument(at(what, i) + " is NULL");
        }
        copied.emplace_back(texts[i]);
    }
    return copied;
}

}  // namespace eliza
