// A GBNF grammar, followed token by token.
#pragma once

#include "byte_trie/masks.h"
#include "llama.h"

namespace eliza {

// Not safe from two threads at once. What looks at the grammar throws Error past its limits, and can be called again.
class Grammar {
public:
    virtual ~Grammar() = default;

    // A lazy grammar waits for a trigger; until it is awake all tokens are legal.
    virtual bool is_lazy() const = 0;
    virtual bool is_awake() = 0;

    virtual bool allows(llama_token token) = 0;

    // The legal tokens, where it is awake.
    virtual SharedMask mask() = 0;

    // Follows the text. After a token it does not allow, the grammar is out of step for good. Never fails: what does is
    // done when it is looked at.
    virtual void accept(llama_token token) = 0;
    virtual bool in_step() = 0;

    virtual void reset() = 0;
};

}  // namespace eliza
