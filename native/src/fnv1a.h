// The 64-bit hash FNV-1a (Fowler, Noll and Vo), computed incrementally.
#pragma once

#include <cstddef>
#include <cstdint>

namespace eliza {

class Fnv1a {
public:
    void add(const void * data, size_t size) {
        const auto * bytes = static_cast<const uint8_t *>(data);
        for (size_t i = 0; i < size; ++i) {
            hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
        }
    }
    uint64_t value() const { return hash_; }

private:
    uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace eliza
