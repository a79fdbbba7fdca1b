// Distinguishes a process from its forked children.
#pragma once

#include <cstdint>

namespace eliza {

// Returns the number of forks between the process that loaded the library and this one. Needs no system call.
uint32_t fork_depth();

}  // namespace eliza
