// A span of choices: which tokens may come next, and whether it is over.
#pragma once

#include <cstdint>
#include <string>

#include "token_trie/token_trie.h"

namespace eliza {

class Constraint {
public:
    // Tokens of a span. The first is for payloads of elizaOS; a span of labels ends with one of them.
    static constexpr int32_t default_span_limit = 500;
    static constexpr int32_t no_span_limit = INT32_MAX;

    // Why the span ended; `open` while it has not.
    enum class End { open, leaf, departed, span_limit, cleared };

    virtual ~Constraint() = default;

    bool active() const { return end_ == End::open; }
    End end() const { return end_; }

    // The legal next tokens, ascending; never empty while active.
    virtual TokenSpan allowed() const = 0;

    // True at a choice that others continue, where a token that is not allowed() ends the span before
    // it.
    virtual bool may_end() const = 0;

    // True for an allowed token that is no part of a choice and says that it has ended.
    virtual bool is_end_token(Token) const { return false; }

    // Walks on. Outside the choices the span ends: on a leaf where it may, else departed.
    void accept(Token token);

    // Ends the span where it stands: on the leaf if that is one.
    void clear() {
        if (active()) {
            end_ = is_leaf() ? End::leaf : End::cleared;
        }
    }
    void reset() {
        n_accepted_ = 0;
        end_ = End::open;
        to_start();
    }

    // The name of the leaf the span ended on; nothing unless it ended on one.
    const std::string * leaf_name() const { return end_ == End::leaf ? &leaf_here() : nullptr; }

protected:
    explicit Constraint(int32_t span_limit) : span_limit_(span_limit) {}
    Constraint(const Constraint &) = default;
    Constraint & operator=(const Constraint &) = default;

    virtual void to_start() = 0;
    virtual bool walk(Token token) = 0;  // false, and nothing happens, where it is not allowed
    virtual bool is_leaf() const = 0;    // what was read is a choice
    virtual bool can_go_on() const = 0;
    virtual const std::string & leaf_here() const = 0;

private:
    int32_t span_limit_;
    int32_t n_accepted_ = 0;
    End end_ = End::open;
};

}  // namespace eliza
