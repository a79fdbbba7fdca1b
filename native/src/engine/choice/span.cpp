#include "engine/choice/span.h"

#include <algorithm>

namespace eliza {

void Span::keep_row(TokenTrie::Node node, const LogitsRow & row) {
    const TokenSpan children = trie().children(node);
    Row & kept = rows_[node];
    kept.resize(children.size);
    row.gather(children, kept.data());
    if (may_end(node)) {
        kept.insert(kept.end(), row.whole(), row.whole() + n_vocab_);
    }
}

TokenSelector::SpanLogits Span::logits_at(TokenTrie::Node node) const {
    const Row & row = rows_.at(node);
    return {row.data(), may_end(node) ? row.data() + trie().children(node).size : nullptr};
}

TokenSelector::SpanLogits Span::gather(const LogitsRow & row) {
    const TokenSpan allowed = constraint_->allowed();
    gathered_.resize(allowed.size);
    row.gather(allowed, gathered_.data());
    return {gathered_.data(), row.whole()};
}

int32_t Span::preferred_place(const TreeBatch & batch, TokenTrie::Node from) const {
    int32_t place = -1;
    for (TokenTrie::Node node = from;;) {
        const TokenSpan children = trie().children(node);
        if (children.empty()) {
            return place;
        }
        uint32_t winner = 0;
        if (trie().is_branch(node)) {
            const auto logits = logits_at(node);
            winner = static_cast<uint32_t>(std::max_element(logits.children, logits.children + children.size) -
                                           logits.children);
        }
        node = trie().first_child(node) + winner;
        const auto found = std::find_if(batch.nodes.begin() + place + 1, batch.nodes.end(),
                                        [&](const TreeBatch::Node & n) { return n.node == node; });
        if (found == batch.nodes.end()) {
            return place;
        }
        place = static_cast<int32_t>(found - batch.nodes.begin());
    }
}

std::vector<double> Span::leaf_logprobs() const {
    return legal_logprobs(trie(), [this](TokenTrie::Node node) {
        const auto logits = logits_at(node);
        const double log_total =
            needs_vocabulary(node) ? log_sum_exp(logits.vocabulary, static_cast<size_t>(n_vocab_)) : 0.0;
        return NodeLogits{logits.children, log_total};
    });
}

}  // namespace eliza
