#include "sampling/legal_tokens.h"

#include <string>

#include "error.h"

namespace eliza {

LegalTokens::LegalTokens(const uint32_t * bits, size_t n_words, int32_t n_vocab) : set_(static_cast<size_t>(n_vocab)) {
    constexpr size_t word_bits = 32;
    const auto n = static_cast<size_t>(n_vocab);
    const size_t n_needed = (n + word_bits - 1) / word_bits;
    if (n_words != n_needed) {
        throw invalid_argument("a token mask of " + std::to_string(n_words) + " words, but " + std::to_string(n) +
                               " tokens need " + std::to_string(n_needed) + " of 32 bits");
    }
    for (size_t i = 0; i < n_words; ++i) {
        for (uint32_t word = bits[i]; word != 0; word &= word - 1) {
            const size_t token = i * word_bits + static_cast<size_t>(__builtin_ctz(word));
            if (token >= n) {
                throw invalid_argument("the token mask allows token " + std::to_string(token) + " of a vocabulary of " +
                                       std::to_string(n));
            }
            set_.add(token);
            tokens_.push_back(static_cast<Token>(token));
        }
    }
    if (tokens_.empty()) {
        throw invalid_argument("the token mask allows no token");
    }
}

}  // namespace eliza
