#include "byte_trie/text_set.h"

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

}  // namespace eliza
