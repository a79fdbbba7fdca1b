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

std::shared_ptr<const DfaMasks> json_string_masks(const std::shared_ptr<const Vocabulary> & vocabulary,
                                                  const std::shared_ptr<const DfaMasks> & bodies) {
    const auto find = [bodies](const Dfa &, Dfa::State state) {
        std::optional<DfaMasks::Inside> inside;
        if (state >= json_string_body_begin && state - json_string_body_begin < bodies->recognizer().n_states()) {
            inside = {bodies->mask(state - json_string_body_begin), '"'};
        }
        return inside;
    };
    return std::make_shared<const DfaMasks>(vocabulary, json_string_dfa(), find);
}

std::shared_ptr<const JsonMasks> json_masks(const std::shared_ptr<const Vocabulary> & vocabulary, JsonRecognizer json,
                                            const std::shared_ptr<const DfaMasks> & bodies) {
    const auto find = [bodies](const JsonRecognizer & self, const JsonRecognizer::State & state) {
        std::optional<JsonMasks::Inside> inside;
        if (const auto in_string = self.inside_string(state)) {
            inside = {bodies->mask(*in_string), '"'};
        }
        return inside;
    };
    return std::make_shared<const JsonMasks>(vocabulary, std::move(json), find);
}

}  // namespace eliza
