#include "byte_trie/text_set.h"

#include <deque>

namespace eliza {

std::vector<Leaf> TextSet::leaves(const std::vector<std::string> & texts) {
    std::vector<Leaf> all;
    all.reserve(texts.size());
    for (const std::string & text : texts) {
        Leaf & leaf = all.emplace_back();
        leaf.name = text;
        leaf.tokens.reserve(text.size());
        for (const char byte : text) {
            leaf.tokens.push_back(static_cast<uint8_t>(byte));
        }
    }
    return all;
}

std::string TextSet::shortest_end(State state) const {
    // Breadth-first, so the first leaf found is at the smallest distance.
    std::deque<std::pair<State, std::string>> open = {{state, ""}};
    while (!may_end(open.front().first)) {
        const auto [node, text] = open.front();
        open.pop_front();
        const TokenSpan bytes = trie_.children(node);
        for (uint32_t i = 0; i < bytes.size; ++i) {
            open.emplace_back(trie_.first_child(node) + i, text + static_cast<char>(bytes[i]));
        }
    }
    return open.front().second;
}

}  // namespace eliza
