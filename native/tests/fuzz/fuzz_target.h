// The entry point for libFuzzer. A program defines run(), which may throw only Error.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "byte_trie/masks.h"
#include "error.h"

namespace eliza::fuzz {

void run(std::string_view input);

// Aborts if the condition does not hold.
inline void require(bool holds) {
    if (!holds) std::abort();
}

// Some tokens that share beginnings or split characters, and a token that occurs twice.
inline std::shared_ptr<const Vocabulary> small_vocabulary() {
    static const auto vocabulary = [] {
        std::vector<std::string> texts;
        for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
        for (const char * text : {"ab", "abc", "a", "SEND", "_EMAIL", "é", "日", "\": ", "{\"", "0.", "true", ""}) {
            texts.emplace_back(text);
        }
        return std::make_shared<const Vocabulary>(ByteTrie(std::vector<std::string_view>(texts.begin(), texts.end())));
    }();
    return vocabulary;
}

}  // namespace eliza::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    try {
        eliza::fuzz::run({reinterpret_cast<const char *>(data), size});
    } catch (const eliza::Error &) {
    }
    return 0;
}
