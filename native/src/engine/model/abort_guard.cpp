#include "engine/model/abort_guard.h"

#include <cstdio>
#include <stdexcept>

#include "ggml.h"

namespace eliza {
namespace {

thread_local int n_guards = 0;

void on_abort(const char * text) {
    if (n_guards > 0) throw std::runtime_error(text);
    std::fprintf(stderr, "%s\n", text);  // as ggml does without a callback; then ggml ends the process
}

}  // namespace

AbortGuard::AbortGuard() noexcept {
    static const bool is_set = [] {
        ggml_set_abort_callback(on_abort);
        return true;
    }();
    static_cast<void>(is_set);
    ++n_guards;
}

AbortGuard::~AbortGuard() { --n_guards; }

}  // namespace eliza
