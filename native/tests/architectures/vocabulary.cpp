#include "architectures/vocabulary.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "llama.h"

namespace eliza {
namespace {

constexpr const char * texts_key = "tokenizer.ggml.tokens";
constexpr const char * scores_key = "tokenizer.ggml.scores";
constexpr const char * types_key = "tokenizer.ggml.token_type";

// Chameleon's tokens 4 to 8195 are image tokens, which llama.cpp does not allow to be chosen. Its text tokens follow
// them.
constexpr size_t first_image_token = 4, n_image_tokens = 8192;

std::vector<std::string> texts(const gguf_context * gguf) {
    const int64_t id = gguf_find_key(gguf, texts_key);
    std::vector<std::string> texts;
    for (size_t i = 0; i < gguf_get_arr_n(gguf, id); ++i) {
        texts.emplace_back(gguf_get_arr_str(gguf, id, i));
    }
    return texts;
}

void set_texts(gguf_context * gguf, const std::vector<std::string> & texts) {
    std::vector<const char *> pointers;
    for (const std::string & text : texts) {
        pointers.push_back(text.c_str());
    }
    gguf_set_arr_str(gguf, texts_key, pointers.data(), pointers.size());
}

template <typename T>
void insert_for_images(gguf_context * gguf, const char * key, gguf_type type, T value) {
    const int64_t id = gguf_find_key(gguf, key);
    const auto * values = static_cast<const T *>(gguf_get_arr_data(gguf, id));
    std::vector<T> more(values, values + gguf_get_arr_n(gguf, id));
    more.insert(more.begin() + first_image_token, n_image_tokens, value);
    gguf_set_arr_data(gguf, key, type, more.data(), more.size());
}

void insert_image_tokens(gguf_context * gguf) {
    std::vector<std::string> images;
    for (size_t image = 0; image < n_image_tokens; ++image) {
        images.push_back("<image " + std::to_string(image) + ">");
    }
    std::vector<std::string> all = texts(gguf);
    all.insert(all.begin() + first_image_token, images.begin(), images.end());
    set_texts(gguf, all);
    insert_for_images(gguf, scores_key, GGUF_TYPE_FLOAT32, 0.0f);
    insert_for_images(gguf, types_key, GGUF_TYPE_INT32, int32_t{LLAMA_TOKEN_TYPE_UNUSED});
}

}  // namespace

uint32_t describe_vocabulary(Metadata & metadata, const gguf_context * vocabulary) {
    for (const char * key : {texts_key, scores_key, types_key}) {
        if (gguf_find_key(vocabulary, key) < 0) {
            throw std::runtime_error(std::string("the vocabulary lacks ") + key);
        }
    }
    metadata.copy(vocabulary, "tokenizer.");
    if (metadata.architecture() == "chameleon") {
        insert_image_tokens(metadata.get());
    }
    return static_cast<uint32_t>(gguf_get_arr_n(metadata.get(), gguf_find_key(metadata.get(), texts_key)));
}

}  // namespace eliza
