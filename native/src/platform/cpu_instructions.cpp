#include "platform/cpu_instructions.h"

#include <cstdint>

#include "error.h"
#include "ggml-cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace eliza {

#if defined(__x86_64__) && defined(__GNUC__)

namespace {

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Returns zeros if the CPU does not have the leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers found;
    __get_cpuid_count(leaf, subleaf, &found.eax, &found.ebx, &found.ecx, &found.edx);
    return found;
}

// Returns the registers that the operating system saves when it switches threads. Registers it does not save cannot be
// used.
uint32_t saved_registers() {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool bit(uint32_t word, int place) { return (word >> place & 1U) != 0; }

}  // namespace

// Bit positions from Intel's manual, volume 2A, CPUID.
std::vector<CpuInstructions> cpu_instructions() {
    const Registers basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
    const uint32_t saved = bit(basic.ecx, 27) ? saved_registers() : 0;
    const bool ymm = (saved & 0x6U) == 0x6U;
    const bool zmm = (saved & 0xE6U) == 0xE6U;
    return {
        {"SSSE3", ggml_cpu_has_ssse3() != 0, bit(basic.ecx, 9)},
        {"AVX", ggml_cpu_has_avx() != 0, ymm && bit(basic.ecx, 28)},
        {"F16C", ggml_cpu_has_f16c() != 0, ymm && bit(basic.ecx, 29)},
        {"FMA", ggml_cpu_has_fma() != 0, ymm && bit(basic.ecx, 12)},
        {"AVX2", ggml_cpu_has_avx2() != 0, ymm && bit(extended.ebx, 5)},
        {"BMI2", ggml_cpu_has_bmi2() != 0, bit(extended.ebx, 8)},
        {"AVX-VNNI", ggml_cpu_has_avx_vnni() != 0, ymm && bit(more.eax, 4)},
        {"AVX-512F", ggml_cpu_has_avx512() != 0, zmm && bit(extended.ebx, 16)},
        {"AVX-512 VBMI", ggml_cpu_has_avx512_vbmi() != 0, zmm && bit(extended.ecx, 1)},
        {"AVX-512 VNNI", ggml_cpu_has_avx512_vnni() != 0, zmm && bit(extended.ecx, 11)},
        {"AVX-512 BF16", ggml_cpu_has_avx512_bf16() != 0, zmm && bit(more.eax, 5)},
    };
}

#elif defined(__aarch64__) && defined(__linux__)

// Bit positions from Linux's asm/hwcap.h, written as numbers because older systems lack the newer names.
std::vector<CpuInstructions> cpu_instructions() {
    const unsigned long here = getauxval(AT_HWCAP), here_too = getauxval(AT_HWCAP2);
    const auto bit = [](unsigned long word, int place) { return (word >> place & 1UL) != 0; };
    return {
        {"FP16 arithmetic", ggml_cpu_has_fp16_va() != 0, bit(here, 10)},
        {"dot product", ggml_cpu_has_dotprod() != 0, bit(here, 20)},
        {"SVE", ggml_cpu_has_sve() != 0, bit(here, 22)},
        {"I8MM", ggml_cpu_has_matmul_int8() != 0, bit(here_too, 13)},
        {"SME", ggml_cpu_has_sme() != 0, bit(here_too, 23)},
    };
}

#else

std::vector<CpuInstructions> cpu_instructions() { return {}; }

#endif

void check_cpu(const std::vector<CpuInstructions> & instructions) {
    std::string lacking;
    for (const CpuInstructions & each : instructions) {
        if (each.are_compiled_in && !each.are_here) {
            lacking += (lacking.empty() ? "" : ", ") + each.name;
        }
    }
    if (!lacking.empty()) {
        throw Error(ELIZA_ERR_FFI_FAULT, "this CPU lacks instructions that this library was compiled for: " + lacking +
                                             "; build the library on this machine, or for an older CPU");
    }
}

}  // namespace eliza
