// The handles of prepared choices.
#pragma once

#include <memory>

#include "abi/boundary.h"
#include "engine/choice/prepared_choices.h"

namespace eliza {

inline HandleTable<const PreparedChoices, EliChoices> & choices_handles() {
    static HandleTable<const PreparedChoices, EliChoices> table;
    return table;
}

inline std::shared_ptr<const PreparedChoices> require_choices(EliChoices * handle) {
    return require_object(choices_handles(), handle, "the choices are NULL",
                          "the choices are freed, or their handle is invalid");
}

}  // namespace eliza
