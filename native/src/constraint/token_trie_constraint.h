// A span over a token trie: each label has exactly one tokenization.
#pragma once

#include <memory>
#include <utility>

#include "constraint/constraint.h"
#include "token_trie/trie_cache.h"

namespace eliza {

class TokenTrieConstraint final : public Constraint {
public:
    // The span starts at the root.
    explicit TokenTrieConstraint(std::shared_ptr<const CachedTrie> trie, int32_t span_limit = no_span_limit)
        : Constraint(span_limit), trie_(std::move(trie)) {}

    TokenSpan allowed() const override { return trie().children(node_); }
    bool may_end() const override { return is_leaf(); }

    const TokenTrie & trie() const { return trie_->trie; }
    const std::shared_ptr<const CachedTrie> & cached_trie() const { return trie_; }
    TokenTrie::Node node() const { return node_; }

private:
    void to_start() override { node_ = TokenTrie::root; }
    bool walk(Token token) override {
        const int32_t child = trie().child(node_, token);
        if (child != TokenTrie::none) {
            node_ = static_cast<TokenTrie::Node>(child);
        }
        return child != TokenTrie::none;
    }
    bool is_leaf() const override { return trie().leaf(node_) != TokenTrie::none; }
    bool can_go_on() const override { return !allowed().empty(); }
    int32_t leaf_here() const override { return trie().leaf(node_); }
    const std::string & name_of(int32_t leaf) const override { return trie().leaf_name(leaf); }

    std::shared_ptr<const CachedTrie> trie_;
    TokenTrie::Node node_ = TokenTrie::root;
};

}  // namespace eliza
