// The allowed next tokens, which the caller passes as a mask with one bit per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_trie/token_set.h"

namespace eliza {

class LegalTokens {
public:
    // Bit t % 32 of word t / 32 stands for token t. Throws Error if the number of words is not (n_vocab + 31) / 32, if
    // no bit is set, or if a bit beyond the vocabulary is set.
    LegalTokens(const uint32_t * bits, size_t n_words, int32_t n_vocab);

    bool allows(Token token) const { return set_.contains(static_cast<size_t>(token)); }

    // The number of allowed tokens, at least 1.
    size_t size() const { return size_; }

    // The allowed tokens in ascending order. The first call lists them, which takes time for large sets.
    TokenSpan tokens() const {
        if (tokens_.empty()) {
            tokens_ = set_.tokens();
        }
        return {tokens_.data(), static_cast<uint32_t>(tokens_.size())};
    }

private:
    TokenSet set_;
    size_t size_;
    mutable std::vector<Token> tokens_;
};

}  // namespace eliza
