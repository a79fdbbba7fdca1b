// A span of labels: it decides which tokens are allowed next, and when the span ends.
#pragma once

#include <cstdint>
#include <string>

#include "token_trie/token_trie.h"

namespace eliza {

class Constraint {
public:
    // Limits in tokens. The first is for elizaOS payloads; a span of labels has no limit, because it ends with a label.
    static constexpr int32_t default_span_limit = 500;
    static constexpr int32_t no_span_limit = INT32_MAX;

    // How the span ended; `open` while it has not.
    enum class End { open, leaf, departed, span_limit, cleared };

    virtual ~Constraint() = default;

    bool active() const { return end_ == End::open; }
    End end() const { return end_; }

    // Returns the allowed next tokens in ascending order; never empty while the span is active.
    virtual TokenSpan allowed() const = 0;

    // Returns true if the tokens so far are a label that is the beginning of another one. Any token that is not
    // allowed() then ends the span, and is not part of it.
    virtual bool may_end() const = 0;

    // Returns true for an allowed token that is not part of a label but ends it.
    virtual bool is_end_token(Token) const { return false; }

    // Advances by a token. A token that is not allowed ends the span: on a leaf if it may end here, otherwise as
    // departed.
    void accept(Token token);

    // Ends the span at its current position, on the leaf if there is one.
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

    // Returns the name of the leaf on which the span ended, or nullptr.
    const std::string * leaf_name() const { return end_ == End::leaf ? &name_of(leaf_here()) : nullptr; }

    // Returns the index of that leaf in payload order, or TokenTrie::none.
    int32_t leaf() const { return end_ == End::leaf ? leaf_here() : TokenTrie::none; }

protected:
    explicit Constraint(int32_t span_limit) : span_limit_(span_limit) {}
    Constraint(const Constraint &) = default;
    Constraint & operator=(const Constraint &) = default;

    virtual void to_start() = 0;
    virtual bool walk(Token token) = 0;  // returns false and changes nothing if the token is not allowed
    virtual bool is_leaf() const = 0;    // the tokens so far are a label
    virtual bool can_go_on() const = 0;
    virtual int32_t leaf_here() const = 0;
    virtual const std::string & name_of(int32_t leaf) const = 0;

private:
    int32_t span_limit_;
    int32_t n_accepted_ = 0;
    End end_ = End::open;
};

}  // namespace eliza
