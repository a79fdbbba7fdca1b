// A span: a position in a token trie that says which tokens may come next.
#pragma once

#include <memory>

#include "token_trie/trie_cache.h"

namespace eliza {

class TokenTrieConstraint {
public:
    static constexpr int32_t default_span_limit = 500;

    // Why the last span ended; `open` while it has not.
    enum class End { open, leaf, departed, span_limit, cleared };

    // Active at once, at the root.
    explicit TokenTrieConstraint(std::shared_ptr<const CachedTrie> trie, int32_t span_limit = default_span_limit)
        : trie_(std::move(trie)), span_limit_(span_limit) {}

    bool active() const { return end_ == End::open; }
    End end() const { return end_; }

    // The legal next tokens, ascending; never empty while active.
    TokenSpan allowed() const { return trie_->trie.children(node_); }

    const TokenTrie & trie() const { return trie_->trie; }
    TokenTrie::Node node() const { return node_; }

    // True at a leaf that others continue: a token that is not allowed() ends the span before it.
    bool may_end() const { return trie_->trie.leaf(node_) != TokenTrie::none; }

    // Walks to the child. Outside the trie the span ends: on the leaf where it may, else departed.
    void accept(Token token);

    // Ends the span where it stands: on the leaf if that is one.
    void clear() {
        if (active()) {
            end_ = may_end() ? End::leaf : End::cleared;
        }
    }
    void reset() {
        node_ = TokenTrie::root;
        n_accepted_ = 0;
        end_ = End::open;
    }

    // The name of the leaf the span ended on; nothing unless it ended on one.
    const std::string * leaf_name() const {
        return end_ == End::leaf ? &trie_->trie.leaf_name(trie_->trie.leaf(node_)) : nullptr;
    }

private:
    std::shared_ptr<const CachedTrie> trie_;
    int32_t span_limit_;
    TokenTrie::Node node_ = TokenTrie::root;
    int32_t n_accepted_ = 0;
    End end_ = End::open;
};

}  // namespace eliza
