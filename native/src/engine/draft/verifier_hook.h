// The callback of a context that reports which drafted tokens were accepted. A context has at most one.
#pragma once

#include <mutex>
#include <utility>

#include "eliza/eliza_inference.h"

namespace eliza {

// Safe from any thread.
class VerifierHook {
public:
    void set(eliza_verifier_callback callback, void * user) {
        const std::lock_guard<std::mutex> lock(mutex_);
        callback_ = callback;
        user_ = user;
    }

    // Calls the callback without holding the lock, because the callback may set another callback.
    void call(const EliVerifierEvent & event) {
        const auto [callback, user] = current();
        if (callback != nullptr) {
            callback(&event, user);
        }
    }

private:
    std::pair<eliza_verifier_callback, void *> current() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return {callback_, user_};
    }

    std::mutex mutex_;
    eliza_verifier_callback callback_ = nullptr;
    void * user_ = nullptr;
};

}  // namespace eliza
