#include "constraint/token_trie_constraint.h"

namespace eliza {

void TokenTrieConstraint::accept(Token token) {
    if (!active()) {
        return;
    }
    const int32_t child = trie_->trie.child(node_, token);
    if (child == TokenTrie::none) {
        end_ = may_end() ? End::leaf : End::departed;
        return;
    }
    node_ = static_cast<TokenTrie::Node>(child);
    ++n_accepted_;
    if (allowed().empty()) {
        end_ = End::leaf;
    } else if (n_accepted_ >= span_limit_) {
        end_ = may_end() ? End::leaf : End::span_limit;
    }
}

}  // namespace eliza
