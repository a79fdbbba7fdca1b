#include "byte_trie/masks.h"

#include <vector>

namespace eliza {

const ByteTrie & Vocabulary::with_byte(uint8_t byte) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto & trie = with_byte_[byte];
    if (trie == nullptr) {
        std::vector<std::string_view> texts(all_.n_vocab());
        for (size_t token = 0; token < texts.size(); ++token) {
            const std::string_view text = all_.text(static_cast<Token>(token));
            if (text.find(static_cast<char>(byte)) != std::string_view::npos) {
                texts[token] = text;
            }
        }
        trie = std::make_unique<const ByteTrie>(texts);
    }
    return *trie;
}

}  // namespace eliza
