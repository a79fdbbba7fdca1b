// A recognizer of a fixed set of strings: a trie whose tokens are bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "byte_trie/recognizer.h"
#include "token_trie/token_trie.h"

namespace eliza {

class TextSet {
public:
    using State = TokenTrie::Node;

    // Throws an Error if the set or a string in it is empty.
    explicit TextSet(const std::vector<std::string> & texts) : trie_(leaves(texts)) {}

    const TokenTrie & trie() const { return trie_; }

    State start() const { return TokenTrie::root; }
    bool step(State & state, uint8_t byte) const {
        const int32_t child = trie_.child(state, byte);
        if (child == TokenTrie::none) {
            return false;
        }
        state = static_cast<State>(child);
        return true;
    }
    bool may_end(State state) const { return trie_.leaf(state) != TokenTrie::none; }
    MaskKey key(State state) const { return {0, state}; }

private:
    static std::vector<Leaf> leaves(const std::vector<std::string> & texts);

    TokenTrie trie_;
};

}  // namespace eliza
