// The handles of prepared choices, and endings that name them.
#pragma once

#include <memory>
#include <string>

#include "abi/boundary.h"
#include "engine/choice/endings.h"
#include "engine/choice/prepared_choices.h"

namespace eliza {

// A static object as described in platform/process.h.
inline auto & choices_handles = *new HandleTable<const PreparedChoices, EliChoices>;

inline std::shared_ptr<const PreparedChoices> require_choices(EliChoices * handle) {
    return require_object(choices_handles, handle, "the choices are NULL",
                          "the choices are freed, or their handle is invalid");
}

// Reads a caller's ending. `name` names it in errors.
inline Ending read_ending(const eliza_ending_t & ending, const std::string & name) {
    if (ending.tokens == nullptr && ending.n_tokens > 0) {
        throw invalid_argument(name + ": tokens is NULL");
    }
    if (ending.n_tokens > INT32_MAX) {
        throw invalid_argument(name + ": expected at most " + std::to_string(INT32_MAX) + " tokens, got " +
                               std::to_string(ending.n_tokens));
    }
    try {
        return {{ending.tokens, ending.tokens + ending.n_tokens}, require_choices(ending.choices)};
    } catch (const Error & error) {
        throw Error(error.status(), name + ": " + error.what());
    }
}

}  // namespace eliza
