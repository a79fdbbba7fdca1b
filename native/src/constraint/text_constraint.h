// A span of free text with fixed text before and after it: decides which tokens are allowed next, by their bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "byte_trie/masks.h"

namespace eliza {

// Every tokenization of the text is allowed, except for text that forced() returns. The text before the value is the
// text of the prompt token that token healing has removed. The text after the value marks its end. One token may
// contain both the value's last byte and the beginning of the text after it.
class TextConstraint {
public:
    virtual ~TextConstraint() = default;

    // Returns true if the token is allowed: a walk over its bytes.
    virtual bool allows(Token token) const = 0;

    // Returns all allowed tokens; never empty before the value is over. Masks of recently seen states are cached.
    virtual SharedMask mask() = 0;

    // Advances by an allowed token.
    virtual void accept(Token token) = 0;

    // may_end(): the value is complete, but may be able to continue. is_over(): it cannot continue.
    virtual bool may_end() const = 0;
    virtual bool is_over() const = 0;

    // Returns true within the fixed text before the value, where few tokens are allowed.
    virtual bool before_value() const = 0;

    // Returns the number of bytes of the text after the value that the last token contained.
    virtual size_t n_after() const = 0;

    // Returns the text that must come next; empty if unknown.
    virtual ForcedText forced() const { return {}; }

    // Returns true if few bytes are allowed next, so that the mask is quickly computed.
    virtual bool is_narrow() const { return false; }

    // Returns the bytes that complete the value; empty if unknown.
    virtual std::string shortest_end() const = 0;

    // Returns the bytes of the value so far.
    const std::string & value() const { return value_; }

protected:
    std::string value_;
};

// Creates constraints of one kind, which share their masks. Safe from any thread.
struct TextConstraintKind {
    std::function<std::unique_ptr<TextConstraint>()> begin;
    size_t n_bytes;

    size_t size_bytes() const { return n_bytes; }
};

std::shared_ptr<const TextConstraintKind> dfa_constraint(const std::shared_ptr<const FramedMasks<DfaMasks>> & masks);
std::shared_ptr<const TextConstraintKind> json_constraint(const std::shared_ptr<const FramedMasks<JsonMasks>> & masks);

}  // namespace eliza
