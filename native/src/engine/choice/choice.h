// The spans of one stream: which span is active, how its decisions are decoded, and on which leaf it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/prepared_choices.h"
#include "engine/choice/span.h"
#include "engine/pass/sequence.h"
#include "sampling/token_selector.h"

namespace eliza {

class Choice {
public:
    // Does not modify the sequence; the caller commits each chosen token to both the sequence and this object.
    Choice(Sequence & sequence, const Options & options)
        : decoder_(sequence.decoder()), sequence_(sequence), options_(options), counts_(sequence.counts()) {}

    bool is_active() const { return span_.has_value(); }
    bool stops_at_leaf() const { return span_ && span_->mode.stop_at_leaf; }

    // Return the span for arguments of the ABI. They throw Error if an argument is invalid.
    Span parse_token_trie(std::string_view payload, int mode) const;
    Span span_of(const PreparedChoices & choices, int mode) const;
    Span parse_text_choices(std::string_view json, int mode, bool has_grammar) const;

    // Starts a span: only its labels can follow. Forgets the results of earlier spans.
    void begin(Span span);

    // Ends the span, if there is one.
    void clear();

    // Ends the span without counting it.
    void drop() {
        span_.reset();
        drawn_.reset();
    }

    // The prompt has become longer: forgets the rows that were computed for later decisions.
    void prompt_changed();

    // Forgets all spans and their results.
    void forget();

    // Returns the next token of the span, or nothing if the span ends without another token. Throws Error.
    std::optional<llama_token> next(TokenSelector & selector);

    // Advances the span by a committed token.
    void accept(llama_token token);

    // Returns the token that was drawn from the whole vocabulary and ended the span, if there is one. The stream
    // generates this token next, instead of drawing a second time.
    std::optional<llama_token> take_drawn() { return std::exchange(drawn_, std::nullopt); }

    struct LeafResult {
        int32_t index;  // in payload order
        std::string name;
        double logprob;
    };
    // The leaf on which the last span ended, if it ended on one.
    const std::optional<LeafResult> & leaf() const { return leaf_; }

    // Returns the natural logarithm of each leaf's probability, in payload order. The first call must come before the
    // first token of the span. Later calls return the stored scores. Throws Error.
    const std::vector<double> & leaf_scores();

    // The number of leaves of the active span, or of the last scores.
    size_t n_leaves() const { return span_ && span_->has_trie() ? span_->trie().n_leaves() : scores_.size(); }

    // ---- Token healing: text choices may replace the prompt's last token by a longer one -----------

    // True while the prompt's last token is removed and the span has no token yet.
    bool healing_is_pending() const { return healed_ && sequence_.tokens().size() == healed_->position; }

    // Returns how many of the next n_bytes bytes repeat text of the prompt.
    size_t skip_text(size_t n_bytes);

private:
    std::string text_to_heal() const;
    void take_back_healing();
    void end_if_over();
    void find_best_leaf();
    std::optional<llama_token> follow_best_leaf();
    void require_trie() const;
    void require_beginning() const;
    LogitsRow row(bool whole);
    TokenSelector::SpanLogits span_logits();
    void count_strategy_of_one_path();
    bool run_tree(TokenTrie::Node from);
    bool is_tree_worth_it(const TokenTrie::Undecided & undecided);
    void decode_batch(const TreeBatch & batch, TokenTrie::Node from);
    void learn_all_branches();

    Decoder & decoder_;
    Sequence & sequence_;
    const Options & options_;
    StreamCounts & counts_;

    std::optional<Span> span_;  // the active one
    std::optional<llama_token> drawn_;
    std::optional<LeafResult> leaf_;
    std::vector<double> scores_;
    struct BestLeaf {
        int32_t leaf;
        double logprob;
    };
    std::optional<BestLeaf> best_;
    struct Healed {
        llama_token token;
        size_t position;
    };
    std::optional<Healed> healed_;
    size_t text_to_skip_ = 0;  // bytes of the healed token's text, which the caller already has
};

}  // namespace eliza
