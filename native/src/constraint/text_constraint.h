// A span of free text between two known ones: which tokens may come next, by their bytes.
#pragma once

#include <memory>
#include <string>

#include "byte_trie/masks.h"

namespace eliza {

// Every way to cut the text into tokens is legal, what is forced() left aside. The texts around the value are known:
// the one before is what token healing has taken back; the one behind tells where the value ends, and may share a token
// with its last byte.
class TextConstraint {
public:
    virtual ~TextConstraint() = default;

    // Whether one token is legal: a walk over its bytes.
    virtual bool allows(Token token) const = 0;

    // All legal tokens, never none until the value is over. Kept for the states seen last, so that
    // most are found and not computed.
    virtual SharedMask mask() = 0;

    // Walks on with a legal token.
    virtual void accept(Token token) = 0;

    // The value is complete: it may still go on, or it cannot.
    virtual bool may_end() const = 0;
    virtual bool is_over() const = 0;

    // True while the known text before the value lasts, where few tokens are legal.
    virtual bool before_value() const = 0;

    // How many bytes of the text behind the value the last token has brought.
    virtual size_t n_after() const = 0;

    // Nothing where that is not known.
    virtual ForcedText forced() const { return {}; }

    // Whether few bytes may come next, so that the mask is found fast.
    virtual bool is_narrow() const { return false; }

    // Bytes that complete the value; nothing where that is not known.
    virtual std::string shortest_end() const = 0;

    // The value's bytes so far.
    const std::string & value() const { return value_; }

protected:
    std::string value_;
};

// Begins constraints of one kind, which share their masks. Safe from any thread.
class TextConstraintKind {
public:
    virtual ~TextConstraintKind() = default;
    virtual std::unique_ptr<TextConstraint> begin() const = 0;
    virtual size_t size_bytes() const = 0;
};

std::shared_ptr<const TextConstraintKind> dfa_constraint(std::shared_ptr<const FramedMasks<DfaMasks>> masks);
std::shared_ptr<const TextConstraintKind> json_constraint(std::shared_ptr<const FramedMasks<JsonMasks>> masks);

}  // namespace eliza
