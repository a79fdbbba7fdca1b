// The choices of one stream: which span is active, how its decisions are decoded, where it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eliza/eliza_inference.h"
#include "engine/choice/prepared_choices.h"
#include "engine/choice/span.h"
#include "engine/options.h"
#include "engine/pass/sequence.h"
#include "sampling/token_selector.h"

namespace eliza {

class Choice {
public:
    // Appends to nothing: whoever takes a token commits it, to the sequence and here. Counts into `stats`.
    Choice(Sequence & sequence, const Options & options, eliza_llm_stream_stats_t & stats)
        : decoder_(sequence.decoder()), sequence_(sequence), options_(options), stats_(stats) {}

    bool is_active() const { return span_.has_value(); }
    bool stops_at_leaf() const { return span_ && span_->mode.stop_at_leaf; }

    // The spans that the ABI's texts ask for. Throws Error for a text that is refused.
    Span parse_token_trie(std::string_view payload, int mode) const;
    Span span_of(const PreparedChoices & choices, int mode) const;
    Span parse_text_choices(std::string_view json, int mode, bool has_grammar) const;

    // From now on only the span's choices are possible. What an earlier one has left is forgotten.
    void begin(Span span);

    // Ends the span, if there is one.
    void clear();

    // The same without counting it, where what it was begun for is over.
    void drop() {
        span_.reset();
        drawn_.reset();
    }

    // The prompt goes on: what was known of decisions to come is not true any more.
    void prompt_changed();

    // Without a trace of any span.
    void forget();

    // The next token of the span; nothing where the span ends before it. Throws Error.
    std::optional<llama_token> next(TokenSelector & selector);

    // Returns the only token that may come next, whose logits the reference computes all the same.
    llama_token take_forced(llama_token token);

    // Counts a token that is known without looking at logits, and returns it.
    llama_token take_without_pass(llama_token token);

    // The row after the last token, of which all is needed if `whole`, else these tokens. The reference computes all
    // logits in llama.cpp's own pass.
    LogitsRow row(bool whole, TokenSpan tokens);

    // The token was committed.
    void accept(llama_token token);

    // The token that was drawn where the span could end, and ended it: the draw of what comes next.
    std::optional<llama_token> take_drawn() { return std::exchange(drawn_, std::nullopt); }

    struct LeafResult {
        std::string name;
        double logprob;
    };
    // The leaf the last span ended on, if it did.
    const std::optional<LeafResult> & leaf() const { return leaf_; }

    // The logarithm of every leaf's probability, in payload order: of the active span, before its first token, or
    // of the last one that was asked. Throws Error.
    const std::vector<double> & leaf_scores();

    // The leaves of the active span, or of the scores there are.
    size_t n_leaves() const { return span_ && span_->has_trie() ? span_->trie().n_leaves() : scores_.size(); }

    // ---- The prompt's last token, where choices by text spell it anew ------------------------------

    // True while it is off and the span has not begun.
    bool healing_is_pending() const { return healed_ && sequence_.tokens().size() == healed_->position; }

    // How many of so many bytes the prompt has told already.
    size_t skip_text(size_t n_bytes);

private:
    std::string text_to_heal() const;
    void take_back_healing();
    void end_if_over();
    std::optional<llama_token> follow_best_leaf();
    TokenSelector::SpanLogits span_logits();
    void count_strategy_of_one_path();
    bool run_tree(TokenTrie::Node from);
    bool is_tree_worth_it(const TokenTrie::Undecided & undecided);
    void decode_batch(const TreeBatch & batch, TokenTrie::Node from);
    void learn_all_branches();

    Decoder & decoder_;
    Sequence & sequence_;
    const Options & options_;
    eliza_llm_stream_stats_t & stats_;

    std::optional<Span> span_;  // while one is active
    std::optional<llama_token> drawn_;
    std::optional<LeafResult> leaf_;
    std::vector<double> scores_;
    struct Healed {
        llama_token token;
        size_t position;
    };
    std::optional<Healed> healed_;
    size_t text_to_skip_ = 0;  // bytes of its text that are not to be given out a second time
};

}  // namespace eliza
