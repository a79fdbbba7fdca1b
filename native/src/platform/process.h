// Which process this is.
#pragma once

#include <cstdint>

namespace eliza {

// How many forks lie between the process that loaded the library and this one. Costs no system call.
uint32_t fork_depth();

}  // namespace eliza
