// Writes a small model with random weights and the vocabulary of model_path() as a GGUF file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-cpp.h"
#include "test_model.h"

namespace eliza::test {

// A GGUF file under construction. The random numbers of a tensor depend only on its name, and are not drawn by the
// standard library's distributions. Therefore a head in a file of its own has the same weights as in the whole model,
// on every platform.
class ModelFile {
public:
    ModelFile(const std::string & arch, size_t width) : arch_(arch), gguf_(gguf_init_empty()) {
        const gguf_context_ptr vocabulary(gguf_init_from_file(model_path().c_str(), {true, nullptr}));
        if (vocabulary == nullptr) throw std::runtime_error("cannot read " + model_path());
        gguf_set_kv(gguf_.get(), vocabulary.get());
        for (int64_t i = 0; i < gguf_get_n_kv(vocabulary.get()); ++i) {
            const std::string key = gguf_get_key(vocabulary.get(), i);
            if (key.rfind("tokenizer.", 0) != 0) gguf_remove_key(gguf_.get(), key.c_str());
        }
        gguf_set_val_str(gguf_.get(), "general.architecture", arch.c_str());
        const size_t words = 2 * token_types().size() * width * sizeof(float);  // for the embedding and the output
        memory_.reset(ggml_init({words + (size_t{16} << 20), nullptr, false}));
        if (memory_ == nullptr) throw std::runtime_error("no memory for the weights of a model");
    }

    void set(const std::string & key, uint32_t value) { gguf_set_val_u32(gguf_.get(), full(key).c_str(), value); }
    void set_real(const std::string & key, float value) { gguf_set_val_f32(gguf_.get(), full(key).c_str(), value); }
    template <class T>
    void set_array(const std::string & key, gguf_type type, const std::vector<T> & values) {
        gguf_set_arr_data(gguf_.get(), full(key).c_str(), type, values.data(), values.size());
    }

    float * add(const std::string & name, std::initializer_list<int64_t> size) {
        ggml_tensor * tensor =
            ggml_new_tensor(memory_.get(), GGML_TYPE_F32, static_cast<int>(size.size()), size.begin());
        ggml_set_name(tensor, name.c_str());
        gguf_add_tensor(gguf_.get(), tensor);
        return ggml_get_data_f32(tensor);
    }
    void add_constant(const std::string & name, int64_t n, float value) { std::fill_n(add(name, {n}), n, value); }
    // Inputs of magnitude 1 give outputs of magnitude `gain`.
    float * add_random(const std::string & name, std::initializer_list<int64_t> size, float gain) {
        std::seed_seq seed(name.begin(), name.end());
        std::mt19937 random(seed);
        int64_t n = 1;
        for (const int64_t extent : size) n *= extent;
        float * values = add(name, size);
        const float largest = gain * std::sqrt(3.0f / static_cast<float>(*size.begin()));
        std::generate_n(values, n, [&] { return largest * (std::ldexp(static_cast<float>(random()), -31) - 1.0f); });
        return values;
    }

    std::vector<int32_t> token_types() const {
        const int64_t key = gguf_find_key(gguf_.get(), "tokenizer.ggml.token_type");
        const auto * types = static_cast<const int32_t *>(gguf_get_arr_data(gguf_.get(), key));
        return {types, types + gguf_get_arr_n(gguf_.get(), key)};
    }

    void write(const std::string & path) const {
        if (!gguf_write_to_file(gguf_.get(), path.c_str(), false)) throw std::runtime_error("cannot write " + path);
    }

private:
    std::string full(const std::string & key) const { return arch_ + "." + key; }

    std::string arch_;
    gguf_context_ptr gguf_;
    ggml_context_ptr memory_;
};

}  // namespace eliza::test
