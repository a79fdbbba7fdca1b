#include "engine/choice/span.h"

#include <algorithm>
#include <cmath>

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
    const TokenTrie & tree = trie();
    std::vector<double> reaching(tree.n_nodes(), 0.0);  // the logarithm of each node's probability
    std::vector<double> ending(tree.n_nodes(), 0.0);    // and of ending there, given it is reached
    // Parents have lower numbers than their children.
    for (TokenTrie::Node node = 0; node < tree.n_nodes(); ++node) {
        const TokenSpan children = tree.children(node);
        for (uint32_t i = 0; i < children.size; ++i) {
            reaching[tree.first_child(node) + i] = reaching[node];
        }
        if (!tree.is_branch(node)) {
            continue;
        }
        const auto logits = logits_at(node);
        double total = log_sum_exp(logits.children, children.size);
        if (may_end(node)) {
            const double of_children = total;
            total = log_sum_exp(logits.vocabulary, static_cast<size_t>(n_vocab_));
            ending[node] = log_of_rest(of_children - total);
        }
        for (uint32_t i = 0; i < children.size; ++i) {
            reaching[tree.first_child(node) + i] += logits.children[i] - total;
        }
    }
    std::vector<double> logprobs;
    for (int32_t leaf = 0; leaf < static_cast<int32_t>(tree.n_leaves()); ++leaf) {
        logprobs.push_back(reaching[tree.leaf_node(leaf)] + ending[tree.leaf_node(leaf)]);
    }
    return logprobs;
}

}  // namespace eliza
