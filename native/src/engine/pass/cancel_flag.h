#pragma once

#include <atomic>

#include "error.h"

namespace eliza {

// Asks whoever works for a stream to stop. Set from any thread; the work that it ends lowers it, so that the next
// call goes on.
class CancelFlag {
public:
    void set() { is_set_ = true; }
    void clear() { is_set_ = false; }
    bool is_set() const { return is_set_; }

    // Throws Error where it is set, and lowers it.
    void throw_if_set() {
        if (is_set_.exchange(false)) {
            throw Error(ELIZA_ERR_CANCELLED, "cancelled");
        }
    }

private:
    std::atomic<bool> is_set_{false};
};

}  // namespace eliza
