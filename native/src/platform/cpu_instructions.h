// What this library was compiled to use of a CPU, and what the CPU it runs on has. A build for one machine, or a
// wheel, may come to an older one, and would be ended there by its first unknown instruction.
#pragma once

#include <string>
#include <vector>

namespace eliza {

struct CpuInstructions {
    std::string name;
    bool are_compiled_in;
    bool are_here;
};

// Those that we can ask about; none on a kind of CPU, or a system, that we cannot ask.
std::vector<CpuInstructions> cpu_instructions();

// Throws Error (ELIZA_ERR_FFI_FAULT) naming those that are compiled in and not here.
void check_cpu(const std::vector<CpuInstructions> & instructions = cpu_instructions());

}  // namespace eliza
