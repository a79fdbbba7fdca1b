// The bytes of one token, as llama.cpp gives them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "llama.h"

namespace eliza {

// Returns "" for a control token, unless `special` is set: then its name. Leaves out up to n_left_out spaces at the
// beginning.
inline std::string token_piece(const llama_vocab * vocab, llama_token token, bool special, int32_t n_left_out = 0) {
    std::string bytes(32, '\0');
    const auto run = [&] {
        return llama_token_to_piece(vocab, token, bytes.data(), static_cast<int32_t>(bytes.size()), n_left_out,
                                    special);
    };
    int32_t size = run();
    if (size < 0) {
        bytes.resize(static_cast<size_t>(-size));
        size = run();
    }
    bytes.resize(static_cast<size_t>(std::max(size, 0)));
    return bytes;
}

}  // namespace eliza
