// Writes the metadata of a GGUF file, key by key.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ggml-cpp.h"
#include "gguf.h"

namespace eliza {

class Metadata {
public:
    // Keys of the model itself have its architecture's name as a prefix.
    explicit Metadata(std::string architecture) : architecture_(std::move(architecture)), gguf_(gguf_init_empty()) {
        gguf_set_val_str(get(), "general.architecture", architecture_.c_str());
        // No model name, because llama.cpp recognizes some names.
        gguf_set_val_str(get(), "general.name", "random weights");
    }

    const std::string & architecture() const { return architecture_; }
    gguf_context * get() const { return gguf_.get(); }

    void set(const std::string & key, uint32_t value) { gguf_set_val_u32(get(), full(key).c_str(), value); }
    void set(const std::string & key, float value) { gguf_set_val_f32(get(), full(key).c_str(), value); }
    void set(const std::string & key, bool value) { gguf_set_val_bool(get(), full(key).c_str(), value); }
    void set(const std::string & key, const std::vector<uint32_t> & values) { set(key, GGUF_TYPE_UINT32, values); }
    void set(const std::string & key, const std::vector<uint64_t> & values) { set(key, GGUF_TYPE_UINT64, values); }
    void set(const std::string & key, const std::vector<float> & values) { set(key, GGUF_TYPE_FLOAT32, values); }

    // For the few keys without that prefix.
    void set_shared(const char * key, float value) { gguf_set_val_f32(get(), key, value); }
    void set_shared(const char * key, uint32_t value) { gguf_set_val_u32(get(), key, value); }

    // Copies all keys with this prefix from another file.
    void copy(const gguf_context * other, const std::string & prefix) {
        const gguf_context_ptr kept(gguf_init_empty());
        gguf_set_kv(kept.get(), other);
        for (int64_t i = 0; i < gguf_get_n_kv(other); ++i) {
            const char * key = gguf_get_key(other, i);
            if (std::string(key).compare(0, prefix.size(), prefix) != 0) {
                gguf_remove_key(kept.get(), key);
            }
        }
        gguf_set_kv(get(), kept.get());
    }

private:
    std::string full(const std::string & key) const { return architecture_ + "." + key; }

    template <typename T>
    void set(const std::string & key, gguf_type type, const std::vector<T> & values) {
        gguf_set_arr_data(get(), full(key).c_str(), type, values.data(), values.size());
    }

    std::string architecture_;
    gguf_context_ptr gguf_;
};

}  // namespace eliza
