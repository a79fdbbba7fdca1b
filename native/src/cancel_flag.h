#pragma once

#include <atomic>

#include "error.h"

namespace eliza {

// A request to stop a stream's work. Any thread may set it. The work that stops because of the flag clears it, so that
// the stream's next call runs normally.
class CancelFlag {
public:
    void set() { is_set_ = true; }
    void clear() { is_set_ = false; }
    bool is_set() const { return is_set_; }

    // If the flag is set, clears it and throws an Error.
    void throw_if_set() {
        if (is_set_.exchange(false)) {
            throw Error(ELIZA_ERR_CANCELLED, "cancelled");
        }
    }

private:
    std::atomic<bool> is_set_{false};
};

}  // namespace eliza
