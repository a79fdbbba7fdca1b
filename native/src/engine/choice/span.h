// One span of a stream: its position among the labels, and the logits of later decisions that are already known.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "constraint/text_choices_constraint.h"
#include "constraint/token_trie_constraint.h"
#include "engine/choice/leaf_scores.h"
#include "engine/pass/output_head.h"
#include "engine/pass/tree_batch.h"
#include "sampling/token_selector.h"

namespace eliza {

struct SpanMode {
    bool sampled = false;       // ELIZA_TRIE_SAMPLE
    bool best_leaf = false;     // ELIZA_TRIE_BEST_LEAF
    bool stop_at_leaf = false;  // ELIZA_TRIE_STOP_AT_LEAF
};

class Span {
public:
    Span(TokenTrieConstraint at_root, SpanMode span_mode, int32_t n_vocab)
        : mode(span_mode), n_vocab_(n_vocab), constraint_(std::make_unique<TokenTrieConstraint>(std::move(at_root))) {
        in_trie_ = static_cast<const TokenTrieConstraint *>(constraint_.get());
    }
    Span(TextChoicesConstraint at_start, SpanMode span_mode, int32_t n_vocab)
        : mode(span_mode),
          n_vocab_(n_vocab),
          constraint_(std::make_unique<TextChoicesConstraint>(std::move(at_start))) {}

    const SpanMode mode;
    double logprob = 0.0;     // of the tokens so far
    std::string healed_text;  // text of the prompt's last token, if it is tokenized again together with the labels

    Constraint & constraint() { return *constraint_; }
    const Constraint & constraint() const { return *constraint_; }

    // ---- Only for a token trie, whose later decisions are known in advance ------------------------

    bool has_trie() const { return in_trie_ != nullptr; }
    const TokenTrie & trie() const { return in_trie_->trie(); }
    std::shared_ptr<const CachedTrie> cached_trie() const { return in_trie_->cached_trie(); }
    TokenTrie::Node node() const { return in_trie_->node(); }

    // Stores the part of a row of logits that the decision at `node` needs.
    void keep_row(TokenTrie::Node node, const LogitsRow & row);
    bool knows(TokenTrie::Node node) const { return rows_.count(node) > 0; }
    void forget_rows() { rows_.clear(); }
    TokenSelector::SpanLogits logits_at(TokenTrie::Node node) const;

    // Returns the index in the batch of the last node on the most probable path from `from`, or -1 if not even its
    // first node is in the batch. All rows of the batch must be stored.
    int32_t preferred_place(const TreeBatch & batch, TokenTrie::Node from) const;

    // Returns the natural logarithm of every leaf's probability, in payload order. The rows of all branches must be
    // stored.
    std::vector<double> leaf_logprobs() const;

    // Returns whether the decision at `node` needs the logits of the whole vocabulary.
    bool needs_vocabulary(TokenTrie::Node node) const { return eliza::needs_vocabulary(trie(), node); }

    // ---- For all spans ----------------------------------------------------------------------------

    // Returns the logits that the current decision needs from a row. They are valid until the next call.
    TokenSelector::SpanLogits gather(const LogitsRow & row);

private:
    // The logits of the children. If the span may end at the node, the logits of the whole vocabulary follow.
    using Row = std::vector<float>;

    bool may_end(TokenTrie::Node node) const { return trie().leaf(node) != TokenTrie::none; }

    int32_t n_vocab_;
    std::unique_ptr<Constraint> constraint_;
    const TokenTrieConstraint * in_trie_ = nullptr;  // the constraint, if it is a token trie
    std::unordered_map<TokenTrie::Node, Row> rows_;
    Row gathered_;
};

}  // namespace eliza
