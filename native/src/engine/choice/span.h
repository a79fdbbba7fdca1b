// One span of a stream: where it stands among the choices, and what is known of the decisions to come.
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
    double logprob = 0.0;     // of the way walked so far
    std::string healed_text;  // of the prompt's last token, where the choices spell it anew

    Constraint & constraint() { return *constraint_; }
    const Constraint & constraint() const { return *constraint_; }

    // ---- Of a token trie alone, whose decisions to come are known beforehand --------------------

    bool has_trie() const { return in_trie_ != nullptr; }
    const TokenTrie & trie() const { return in_trie_->trie(); }
    TokenTrie::Node node() const { return in_trie_->node(); }

    // Keeps what a decision at `node` needs of a row of logits.
    void keep_row(TokenTrie::Node node, const LogitsRow & row);
    bool knows(TokenTrie::Node node) const { return rows_.count(node) > 0; }
    void forget_rows() { rows_.clear(); }
    TokenSelector::SpanLogits logits_at(TokenTrie::Node node) const;

    // The place in the batch to which the most likely way from `from` leads, -1 if it leaves it at
    // once. The rows of the batch must be kept already.
    int32_t preferred_place(const TreeBatch & batch, TokenTrie::Node from) const;

    // The logarithm of every leaf's probability, in payload order; all branches must be known.
    std::vector<double> leaf_logprobs() const;

    // True where a decision needs the logits of the whole vocabulary.
    bool needs_vocabulary(TokenTrie::Node node) const { return eliza::needs_vocabulary(trie(), node); }

    // ---- Of any choices -------------------------------------------------------------------------

    // The logits of the current decision out of a row that is at hand; valid until the next call.
    TokenSelector::SpanLogits gather(const LogitsRow & row);

private:
    // Children's logits, and behind them the vocabulary's where the span may end.
    using Row = std::vector<float>;

    bool may_end(TokenTrie::Node node) const { return trie().leaf(node) != TokenTrie::none; }

    int32_t n_vocab_;
    std::unique_ptr<Constraint> constraint_;
    const TokenTrieConstraint * in_trie_ = nullptr;  // the constraint, if it is one
    std::unordered_map<TokenTrie::Node, Row> rows_;
    Row gathered_;
};

}  // namespace eliza
