// The metadata of a GGUF file, and the names, types and sizes of its tensors. Reads them with limits for everything
// that a malicious file could make large. llama.cpp reads the file itself; this is for checks before that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
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
    std::vector<uint64_t> dims;  // dimensions beyond the file's are 1
    uint32_t type = 0;           // a ggml_type, if the file is valid
    uint64_t offset = 0;         // in the file's tensor data

    uint64_t dim(size_t i) const { return i < dims.size() ? dims[i] : 1; }
};

class GgufHeader {
public:
    // Throws an Error (ELIZA_ERR_BUNDLE_INVALID) that names the file, the position and the limit.
    explicit GgufHeader(const std::string & path);
    GgufHeader(const GgufHeader &) = delete;
    GgufHeader & operator=(const GgufHeader &) = delete;

    bool has(std::string_view key) const { return find(key) != nullptr; }
    bool is_scalar(std::string_view key, gguf_type type) const;

    // Returns the value of a key if the file has it with this type.
    template <class T>
    std::optional<T> number(std::string_view key, gguf_type type) const {
        const Value * value = find(key);
        if (value == nullptr || value->is_array || value->type != type) return std::nullopt;
        return at<T>(value->begin);
    }
    std::optional<uint32_t> u32(std::string_view key) const { return number<uint32_t>(key, GGUF_TYPE_UINT32); }
    std::optional<float> f32(std::string_view key) const { return number<float>(key, GGUF_TYPE_FLOAT32); }
    std::optional<bool> boolean(std::string_view key) const;
    // Ends at the first NUL, as in llama.cpp.
    std::optional<std::string_view> text(std::string_view key) const;

    // Returns the items of an array if the file has it with items of this type; otherwise nothing.
    template <class T>
    std::vector<T> numbers(std::string_view key, gguf_type type) const {
        const Value * value = find(key);
        if (value == nullptr || !value->is_array || value->type != type) return {};
        std::vector<T> items(value->count);
        if (!items.empty()) std::memcpy(items.data(), data_.data() + value->begin, items.size() * sizeof(T));
        return items;
    }
    std::vector<std::string_view> texts(std::string_view key) const;

    // Returns a number for each layer, from an array of that length or from one number for all layers. Returns nothing
    // if the file has neither.
    std::vector<uint32_t> per_layer(std::string_view key, uint32_t n_layers) const;

    const std::vector<GgufTensor> & tensors() const { return tensors_; }
    const GgufTensor * tensor(std::string_view name) const;

    // The file's identity just before it was read.
    const GgufFile & file() const { return file_; }

    // Returns an Error with the text "FILE: text".
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
    std::string data_;  // the header; all names and strings are views of it
    std::unordered_map<std::string_view, Value> values_;
    std::vector<GgufTensor> tensors_;
};

// The values of one architecture, whose keys begin with its name. `file` must outlive this.
class GgufArch {
public:
    GgufArch(const GgufHeader & file, std::string_view arch) : file_(file), arch_(arch) {}

    const GgufHeader & file() const { return file_; }
    const std::string & arch() const { return arch_; }
    bool is_one_of(std::initializer_list<std::string_view> names) const {
        return std::find(names.begin(), names.end(), arch_) != names.end();
    }
    std::string key(const std::string & name) const { return arch_ + "." + name; }
    std::optional<uint32_t> u32(const std::string & name) const { return file_.u32(key(name)); }
    uint32_t u32_or(const std::string & name, uint32_t missing) const { return u32(name).value_or(missing); }

    void require(bool is_good, const std::string & name, const std::string & value, const std::string & limit) const {
        if (!is_good) throw file_.error(key(name) + " is " + value + "; " + limit);
    }
    void require(bool is_good, const std::string & name, uint32_t value, const std::string & limit) const {
        require(is_good, name, std::to_string(value), limit);
    }

private:
    const GgufHeader & file_;
    std::string arch_;
};

}  // namespace eliza
