#include "platform/lazy_buffers.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "ggml-backend-impl.h"

namespace eliza {

namespace {

constexpr size_t least_bytes = size_t{1} << 20;  // smaller buffers are cleared faster by writing

decltype(ggml_backend_buffer_type_i::alloc_buffer) allocate = nullptr;  // llama.cpp's own

// Sets [begin, begin + size) to zero. Returns false, and changes nothing, if the system keeps the pages in memory.
bool drop_pages(char * begin, size_t size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t before = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
    const size_t whole = (size - before) / page * page;
    if (madvise(begin + before, whole, MADV_DONTNEED) != 0) {
        return false;
    }
    std::memset(begin, 0, before);
    std::memset(begin + before + whole, 0, size - before - whole);
    return true;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    auto * const begin = static_cast<char *>(buffer->context);
    if (value != 0 || buffer->size < least_bytes || !drop_pages(begin, buffer->size)) {
        std::memset(begin, value, buffer->size);
    }
}

ggml_backend_buffer_t allocate_lazy(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = allocate(type, size);
    if (buffer != nullptr) {
        buffer->iface.clear = clear;
    }
    return buffer;
}

}  // namespace

void clear_buffers_lazily() {
    if (allocate == nullptr) {
        allocate = std::exchange(ggml_backend_cpu_buffer_type()->iface.alloc_buffer, allocate_lazy);
    }
}

}  // namespace eliza

#else

namespace eliza {

void clear_buffers_lazily() {}

}  // namespace eliza

#endif
