// A GBNF grammar that is followed token by token.
#pragma once

#include "byte_trie/masks.h"
#include "llama.h"

namespace eliza {

// Not thread-safe. The functions that evaluate the grammar throw an Error if it exceeds its limits; they can be called
// again.
class Grammar {
public:
    virtual ~Grammar() = default;

    // A lazy grammar waits for a trigger. Until it is awake, all tokens are allowed.
    virtual bool is_lazy() const = 0;
    virtual bool is_awake() = 0;

    virtual bool allows(llama_token token) = 0;

    // The allowed tokens. Only meaningful if the grammar is awake.
    virtual SharedMask mask() = 0;

    // Advances by a token. If the grammar does not allow the token, in_step() is false from then on. Never fails: the
    // evaluation is deferred to the functions above.
    virtual void accept(llama_token token) = 0;
    virtual bool in_step() = 0;

    virtual void reset() = 0;
};

}  // namespace eliza
