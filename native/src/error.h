// The one exception of the library. It carries the status that src/abi turns into a return value.
#pragma once

#include <stdexcept>
#include <string>

#include "eliza/eliza_inference.h"

namespace eliza {

class Error : public std::runtime_error {
public:
    Error(eliza_status status, const std::string & text) : std::runtime_error(text), status_(status) {}

    eliza_status status() const noexcept { return status_; }

private:
    eliza_status status_;
};

// The KV cache is full. The stream keeps its tokens and can resume once there is room.
class ContextFull : public Error {
public:
    explicit ContextFull(const std::string & text) : Error(ELIZA_ERR_CONTEXT_FULL, "context full: " + text) {}
};

inline Error invalid_argument(const std::string & text) { return {ELIZA_ERR_INVALID_ARG, text}; }

}  // namespace eliza
