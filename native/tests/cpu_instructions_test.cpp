#include "platform/cpu_instructions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "error.h"

namespace eliza {
namespace {

// What Linux reports about the first CPU, as a set of words.
std::set<std::string> words_of_cpuinfo() {
    std::ifstream file("/proc/cpuinfo");
    std::set<std::string> words;
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
            std::istringstream stream(line);
            for (std::string word; stream >> word;) {
                words.insert(word);
            }
            break;
        }
    }
    return words;
}

TEST(CpuInstructions, AgreeWithLinux) {
    const std::map<std::string, std::string> linux_names = {
        {"SSSE3", "ssse3"},
        {"AVX", "avx"},
        {"F16C", "f16c"},
        {"FMA", "fma"},
        {"AVX2", "avx2"},
        {"BMI2", "bmi2"},
        {"AVX-VNNI", "avx_vnni"},
        {"AVX-512F", "avx512f"},
        {"AVX-512 VBMI", "avx512vbmi"},
        {"AVX-512 VNNI", "avx512_vnni"},
        {"AVX-512 BF16", "avx512_bf16"},
        {"FP16 arithmetic", "asimdhp"},
        {"dot product", "asimddp"},
        {"SVE", "sve"},
        {"I8MM", "i8mm"},
        {"SME", "sme"},
    };
    const std::set<std::string> words = words_of_cpuinfo();
    if (words.empty()) {
        GTEST_SKIP() << "this system has no /proc/cpuinfo";
    }
    for (const CpuInstructions & each : cpu_instructions()) {
        EXPECT_EQ(each.are_here, words.count(linux_names.at(each.name)) == 1) << each.name;
    }
}

TEST(CpuInstructions, OfThisBuildAreOnThisCpu) { EXPECT_NO_THROW(check_cpu()); }

TEST(CpuInstructions, ThatAreMissingAreNamed) {
    try {
        check_cpu({{"AVX", true, true}, {"AVX2", true, false}, {"FMA", true, false}, {"SVE", false, false}});
        FAIL() << "no exception was thrown";
    } catch (const Error & error) {
        EXPECT_EQ(error.status(), ELIZA_ERR_FFI_FAULT);
        EXPECT_NE(std::string(error.what()).find("compiled for: AVX2, FMA;"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace eliza
