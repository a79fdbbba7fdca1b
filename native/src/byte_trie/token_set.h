// A set of tokens of one vocabulary, with one bit per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "token_trie/token_trie.h"

namespace eliza {

class TokenSet {
public:
    explicit TokenSet(size_t n_vocab) : n_vocab_(n_vocab), words_((n_vocab + 64) / 64) {}

    // From (n_vocab + 31) / 32 words of 32 bits: bit t % 32 of word t / 32 stands for token t.
    TokenSet(const uint32_t * bits, size_t n_words, size_t n_vocab) : TokenSet(n_vocab) {
        for (size_t i = 0; i < n_words; ++i) {
            words_[i / 2] |= uint64_t(bits[i]) << (32 * (i % 2));
        }
    }

    // `token` may be n_vocab, which stands for no token. Its bit exists, and must be removed before the set is read.
    void add(size_t token) { words_[token / 64] |= uint64_t(1) << (token % 64); }
    void remove(size_t token) { words_[token / 64] &= ~(uint64_t(1) << (token % 64)); }
    bool contains(size_t token) const { return (words_[token / 64] >> (token % 64) & 1) != 0; }

    bool operator==(const TokenSet & other) const { return words_ == other.words_; }

    // Returns the members in ascending order.
    std::vector<Token> tokens() const {
        std::vector<Token> members;
        for (size_t i = 0; i < words_.size(); ++i) {
            for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
                members.push_back(static_cast<Token>(i * 64 + static_cast<size_t>(__builtin_ctzll(word))));
            }
        }
        return members;
    }

    size_t count() const {
        size_t n = 0;
        for (const uint64_t word : words_) {
            n += static_cast<size_t>(__builtin_popcountll(word));
        }
        return n;
    }

    // Returns the member if there is exactly one, otherwise -1.
    Token only() const { return count() == 1 ? tokens().front() : -1; }

    size_t n_vocab() const { return n_vocab_; }

private:
    size_t n_vocab_;
    std::vector<uint64_t> words_;
};

}  // namespace eliza
