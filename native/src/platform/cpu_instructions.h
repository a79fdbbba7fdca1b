// The instruction sets that this library was compiled to use, and the instruction sets of this CPU. A wheel, or a build
// for another machine, may run on an older CPU, where its first unknown instruction would end the process.
#pragma once

#include <string>
#include <vector>

namespace eliza {

struct CpuInstructions {
    std::string name;
    bool are_compiled_in;
    bool are_here;
};

// Returns the instruction sets that can be queried; none on other kinds of CPU or other systems.
std::vector<CpuInstructions> cpu_instructions();

// Throws an Error (ELIZA_ERR_FFI_FAULT) that names the instruction sets that are compiled in and missing on this CPU.
void check_cpu(const std::vector<CpuInstructions> & instructions = cpu_instructions());

}  // namespace eliza
