// Which tokens may come next, told by the caller one bit each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_trie/token_set.h"

namespace eliza {

class LegalTokens {
public:
    // Bit t % 32 of word t / 32 stands for token t. Throws Error unless there is a word for every 32 tokens, one bit
    // is set and none is beyond the vocabulary.
    LegalTokens(const uint32_t * bits, size_t n_words, int32_t n_vocab);

    bool allows(Token token) const { return set_.contains(static_cast<size_t>(token)); }

    // The legal tokens, ascending; never empty.
    TokenSpan tokens() const { return {tokens_.data(), static_cast<uint32_t>(tokens_.size())}; }

private:
    TokenSet set_;
    std::vector<Token> tokens_;
};

}  // namespace eliza
