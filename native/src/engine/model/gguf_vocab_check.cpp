#include "engine/model/gguf_vocab_check.h"

#include <algorithm>
#include <array>

namespace eliza {
namespace {

using Tokens = std::vector<std::string_view>;

// A static object as described in platform/process.h.
const std::string & tokens_key = *new std::string("tokenizer.ggml.tokens");

std::string quoted(std::string_view text) {
    constexpr size_t most = 40;
    return '"' + std::string(text.substr(0, most)) + (text.size() > most ? "...\"" : "\"");
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

// The defaults of llama.cpp for each kind of tokenizer: token ids, and whether the tokens are added automatically.
struct Defaults {
    std::optional<uint32_t> bos{}, eos{}, sep{};
    bool add_bos = false;
    bool add_eos = false;
    bool always_adds = false;  // BOS and the separator are added, whatever the file says
};

Defaults defaults_for(std::string_view model, std::string_view pre) {
    if (model == "llama") return {1, 2, std::nullopt, true, false};
    if (model == "bert") return {101, std::nullopt, 102, true, false, true};
    if (model == "t5") return {std::nullopt, 1, std::nullopt, false, true};
    if (is_one_of(model, {"plamo2", "plamo3"})) return {1, 2};
    if (model == "gemma4") return {std::nullopt, std::nullopt, std::nullopt, true, false};
    if (is_one_of(model, {"gpt2", "hybriddna", "whitespace"})) {
        Defaults defaults{11, 11};
        if (is_one_of(pre, {"chatglm-bpe", "glm4", "glm5"})) defaults.bos.reset();
        defaults.add_bos =
            is_one_of(pre, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                            "jina-v5-nano", "tekken", "chameleon", "gemma4", "granite-embed-multi-311m"});
        return defaults;
    }
    return {};
}

// An id from the file counts if it is in the vocabulary; otherwise the default is used.
bool has_id(const GgufHeader & file, const std::string & name, std::optional<uint32_t> by_default, size_t n_tokens) {
    const auto inside = [&](std::optional<uint32_t> id) { return id && *id < n_tokens; };
    return inside(file.u32("tokenizer.ggml." + name)) || inside(by_default);
}

// When llama-vocab.cpp tokenizes a text, it asserts that every token that it adds automatically exists.
void check_added_tokens(const GgufHeader & file, std::string_view model, std::string_view pre, size_t n_tokens) {
    const Defaults defaults = defaults_for(model, pre);
    const bool adds_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(defaults.add_bos) ||
                          defaults.always_adds || model == "gemma4" ||
                          is_one_of(pre, {"gemma4", "granite-embed-multi-311m"});
    const bool adds_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(defaults.add_eos);
    const auto require = [&](bool adds, const std::string & name, std::optional<uint32_t> by_default) {
        if (adds && !has_id(file, name, by_default, n_tokens)) {
            throw file.error("tokenizer.ggml." + name + " is not one of the " + std::to_string(n_tokens) +
                             " tokens, but the tokenizer " + quoted(model) + " adds it automatically");
        }
    };
    if (is_one_of(model, {"rwkv", "test"})) return;  // these add no tokens
    require(adds_bos, "bos_token_id", defaults.bos);
    require(adds_eos && model != "bert", "eos_token_id", defaults.eos);
    require(defaults.always_adds, "seperator_token_id", defaults.sep);
}

// Returns the first byte of a token, or nothing if the token is empty. Files write the tokens of the RWKV tokenizer
// with escapes, which this function decodes. Sets n_bytes to the number of decoded bytes.
std::optional<uint8_t> first_byte(std::string_view text, size_t & n_bytes) {
    std::optional<uint8_t> first;
    n_bytes = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        auto byte = static_cast<uint8_t>(text[i]);
        if (text[i] == '\\') {
            if (++i == text.size()) break;
            byte = static_cast<uint8_t>(text[i]);
            if (text[i] == 'x') {
                // Like llama.cpp, does not check that these are digits.
                const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
                if (i + 2 >= text.size()) break;
                byte = static_cast<uint8_t>((digit(text[i + 1]) << 4) + digit(text[i + 2]));
                i += 2;
            } else if (text[i] == 't') {
                byte = '\t';
            } else if (text[i] == 'n') {
                byte = '\n';
            } else if (text[i] == 'r') {
                byte = '\r';
            }
        }
        if (!first) first = byte;
        ++n_bytes;
    }
    return first;
}

// If tokens begin with a byte that is not a token itself, the RWKV tokenizer can loop for ever: it finds no token for
// the byte and starts again at the first byte of the text.
void check_rwkv(const GgufHeader & file, const Tokens & tokens) {
    std::array<bool, 256> begins{};
    std::array<bool, 256> is_token{};
    for (const std::string_view token : tokens) {
        size_t n_bytes = 0;
        if (const auto first = first_byte(token, n_bytes)) {
            begins[*first] = true;
            is_token[*first] = is_token[*first] || n_bytes == 1;
        }
    }
    for (size_t byte = 0; byte < begins.size(); ++byte) {
        if (begins[byte] && !is_token[byte]) {
            throw file.error(tokens_key + ": tokens begin with the byte " + std::to_string(byte) +
                             ", which is not a token itself, but the tokenizer \"rwkv\" requires it");
        }
    }
}

// These tokenizers store tokens in a tree whose depth is the longest token's length, and traverse it recursively.
void check_lengths(const GgufHeader & file, const Tokens & tokens) {
    constexpr size_t longest = 4096;
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i].size() > longest) {
            throw file.error(tokens_key + "[" + std::to_string(i) + "] is " + std::to_string(tokens[i].size()) +
                             " bytes long; the limit for this tokenizer is " + std::to_string(longest));
        }
    }
}

// The PLaMo tokenizers store every suffix of every token, so a token of n bytes costs n * n.
void check_plamo(const GgufHeader & file, const Tokens & tokens) {
    constexpr uint64_t most = uint64_t{1} << 28;
    uint64_t cost = 0;
    for (const std::string_view token : tokens) {
        cost += uint64_t{token.size()} * token.size();
        if (token.size() > 65'536 || cost > most) {
            throw file.error(
                tokens_key +
                " are too long for a PLaMo tokenizer; the limit for the sum of the squares of their lengths is " +
                std::to_string(most));
        }
    }
}

}  // namespace

void check_vocabulary(const GgufHeader & file) {
    const std::string_view model = file.text("tokenizer.ggml.model").value_or("");
    const std::string_view pre = file.text("tokenizer.ggml.pre").value_or("");
    if (is_one_of(model, {"no_vocab", "none"})) throw file.error("has no vocabulary");
    const Tokens tokens = file.texts(tokens_key);
    if (tokens.empty()) {
        throw file.error(tokens_key + " is missing or empty; expected at least one token");
    }
    check_added_tokens(file, model, pre, tokens.size());
    if (pre == "whitespace" && model != "whitespace" && model != "gemma4") {
        // find_bpe_rank asserts that words contain no spaces, but this pre-tokenizer leaves spaces in words.
        throw file.error("tokenizer.ggml.pre is \"whitespace\", but tokenizer.ggml.model is " + quoted(model) +
                         "; expected \"whitespace\" or \"gemma4\"");
    }
    if (model == "bert") {
        // token_to_byte ends the process for byte tokens of this tokenizer.
        constexpr int32_t byte_type = 6;
        const auto types = file.numbers<int32_t>("tokenizer.ggml.token_type", GGUF_TYPE_INT32);
        if (std::find(types.begin(), types.end(), byte_type) != types.end()) {
            throw file.error(
                "tokenizer.ggml.token_type has byte tokens, which the tokenizer \"bert\" does not support");
        }
    }
    if (is_one_of(model, {"rwkv", "t5"})) check_lengths(file, tokens);
    if (model == "rwkv") check_rwkv(file, tokens);
    if (is_one_of(model, {"plamo2", "plamo3"})) check_plamo(file, tokens);
}

}  // namespace eliza
