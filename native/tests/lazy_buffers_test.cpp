// Buffers in main memory are set to zero without writing to them.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>

#include "ggml-backend.h"
#include "log.h"

namespace eliza::test {
namespace {

using Buffer = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;

Buffer allocate(size_t size) {
    init_backend();
    return {ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size), ggml_backend_buffer_free};
}

class LazyBuffers : public testing::TestWithParam<size_t> {};

TEST_P(LazyBuffers, AreClearedWhole) {
    const Buffer buffer = allocate(GetParam());
    auto * const begin = static_cast<char *>(ggml_backend_buffer_get_base(buffer.get()));
    char * const end = begin + ggml_backend_buffer_get_size(buffer.get());
    for (const char value : {0, 7, 0, 0}) {
        ggml_backend_buffer_clear(buffer.get(), static_cast<uint8_t>(value));
        ASSERT_EQ(std::count(begin, end, value), end - begin);
        std::fill(begin, end, char{3});
    }
}

// Smaller than a page, not whole pages, and around the size from which pages are given back.
INSTANTIATE_TEST_SUITE_P(Sizes, LazyBuffers,
                         testing::Values(100, 5000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (40 << 20) + 12345));

TEST(LazyBuffers, TakeNoMemoryBeforeTheyAreUsed) {
    const auto resident_kilobytes = [] {
        std::ifstream status("/proc/self/status");
        for (std::string word; status >> word;) {
            if (size_t count; word == "VmRSS:" && status >> count) return count;
        }
        return size_t{0};
    };
    const size_t before = resident_kilobytes();
    if (before == 0) {
        GTEST_SKIP() << "the system does not report the memory of a process";
    }
    constexpr size_t size = size_t{256} << 20;
    const Buffer buffer = allocate(size);
    ggml_backend_buffer_clear(buffer.get(), 0);
    EXPECT_LT(resident_kilobytes(), before + (size >> 10) / 2);
}

}  // namespace
}  // namespace eliza::test
