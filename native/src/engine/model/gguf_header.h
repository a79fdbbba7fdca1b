// What a GGUF file says of itself: its metadata and its tensors' names, types and sizes, read with bounds on all
// that a hostile file could make large. llama.cpp reads the file itself; this is for what must be known before.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/model/gguf_file.h"
#include "error.h"
#include "gguf.h"

namespace eliza {

struct GgufTensor {
    std::string_view name;
    std::vector<uint64_t> dims;  // 1 where the file has none
    uint32_t type = 0;           // a ggml_type, if the file is sound
    uint64_t offset = 0;         // in the tensors' part of the file

    uint64_t dim(size_t i) const { return i < dims.size() ? dims[i] : 1; }
};

class GgufHeader {
public:
    // Throws Error (ELIZA_ERR_BUNDLE_INVALID) that names the file, the place and the limit.
    explicit GgufHeader(const std::string & path);
    GgufHeader(const GgufHeader &) = delete;
    GgufHeader & operator=(const GgufHeader &) = delete;

    bool has(std::string_view key) const { return find(key) != nullptr; }
    bool is_scalar(std::string_view key, gguf_type type) const;

    // The value of a key, where the file has it with this type.
    template <class T>
    std::optional<T> number(std::string_view key, gguf_type type) const {
        const Value * value = find(key);
        if (value == nullptr || value->is_array || value->type != type) return std::nullopt;
        return at<T>(value->begin);
    }
    std::optional<uint32_t> u32(std::string_view key) const { return number<uint32_t>(key, GGUF_TYPE_UINT32); }
    std::optional<float> f32(std::string_view key) const { return number<float>(key, GGUF_TYPE_FLOAT32); }
    std::optional<bool> boolean(std::string_view key) const;
    // As llama.cpp reads it: to the first NUL.
    std::optional<std::string_view> text(std::string_view key) const;

    // The items of an array, where the file has it with items of this type; else none.
    template <class T>
    std::vector<T> numbers(std::string_view key, gguf_type type) const {
        const Value * value = find(key);
        if (value == nullptr || !value->is_array || value->type != type) return {};
        std::vector<T> items(value->count);
        if (!items.empty()) std::memcpy(items.data(), data_.data() + value->begin, items.size() * sizeof(T));
        return items;
    }
    std::vector<std::string_view> texts(std::string_view key) const;

    // A number for each layer: an array of as many, or one number for all. None where llama.cpp takes neither.
    std::vector<uint32_t> per_layer(std::string_view key, uint32_t n_layers) const;

    std::vector<std::string_view> keys() const;
    const std::vector<GgufTensor> & tensors() const { return tensors_; }
    const GgufTensor * tensor(std::string_view name) const;
    uint64_t data_offset() const { return data_offset_; }  // where the tensors' part of the file begins

    // As it was just before it was read.
    const GgufFile & file() const { return file_; }

    // "FILE: what is wrong"
    Error error(const std::string & text) const;

private:
    struct Value {
        gguf_type type;
        bool is_array;
        uint64_t count;
        size_t begin;
    };

    template <class T>
    T at(size_t offset) const {
        T value;
        std::memcpy(&value, data_.data() + offset, sizeof(T));
        return value;
    }
    const Value * find(std::string_view key) const;
    std::string_view text_at(size_t begin) const;

    class Reader;

    GgufFile file_;
    std::string data_;  // the header, which all names and texts are views of
    std::unordered_map<std::string_view, Value> values_;
    std::vector<GgufTensor> tensors_;
    uint64_t data_offset_ = 0;
};

}  // namespace eliza
