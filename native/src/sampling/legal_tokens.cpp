#include "sampling/legal_tokens.h"

#include <string>

#include "error.h"

namespace eliza {
namespace {

constexpr size_t word_bits = 32;

// Returns the size of the vocabulary. Throws Error if the words are not a mask for it.
size_t checked_vocabulary(const uint32_t * bits, size_t n_words, size_t n_vocab) {
    const size_t n_needed = (n_vocab + word_bits - 1) / word_bits;
    if (n_words != n_needed) {
        throw invalid_argument("token mask: expected " + std::to_string(n_needed) + " words of 32 bits for " +
                               std::to_string(n_vocab) + " tokens, got " + std::to_string(n_words));
    }
    const size_t n_last = n_vocab % word_bits;
    if (const uint32_t beyond = n_last == 0 ? 0 : bits[n_words - 1] >> n_last; beyond != 0) {
        throw invalid_argument("token mask: token " +
                               std::to_string(n_vocab + static_cast<size_t>(__builtin_ctz(beyond))) +
                               " is beyond the vocabulary of " + std::to_string(n_vocab) + " tokens");
    }
    return n_vocab;
}

}  // namespace

LegalTokens::LegalTokens(const uint32_t * bits, size_t n_words, int32_t n_vocab)
    : set_(bits, n_words, checked_vocabulary(bits, n_words, static_cast<size_t>(n_vocab))), size_(set_.count()) {
    if (size_ == 0) {
        throw invalid_argument("token mask: expected at least one allowed token, got none");
    }
}

}  // namespace eliza
