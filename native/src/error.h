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

inline Error invalid_argument(const std::string & text) { return {ELIZA_ERR_INVALID_ARG, text}; }

}  // namespace eliza
