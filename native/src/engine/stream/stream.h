// One generation: prompt in, tokens out, choices on the way.
//
// next() and generate() of the ABI are both loops over peek() and take(). Not safe from two threads
// at once, except cancel().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/token_trie_constraint.h"
#include "eliza/eliza_inference.h"
#include "engine/answer/span_spec.h"
#include "engine/choice/span.h"
#include "engine/draft/drafter.h"
#include "engine/draft/verifier_hook.h"
#include "engine/options.h"
#include "engine/pass/sequence.h"
#include "engine/stream/utf8_assembler.h"
#include "sampling/token_selector.h"

namespace eliza {

// eliza_llm_stream_config_t with its defaults and strings resolved.
struct StreamConfig {
    int32_t max_tokens = 0;
    SamplingParams sampling;
    std::string gbnf_grammar;
    int32_t slot_id = -1;
    std::string prompt_cache_key;
    DraftConfig draft;
    std::string model_fingerprint;
};

class Stream {
public:
    Stream(std::shared_ptr<Decoder> decoder, const StreamConfig & config, const Options & options, Progress progress,
           std::shared_ptr<VerifierHook> verifier);

    // Appends and decodes. On failure the conversation is as it was.
    void prefill(const llama_token * tokens, size_t n);

    // What comes next: a token, the end, or both.
    struct Step {
        std::optional<llama_token> token;
        std::string text;
        bool final = false;
    };

    // The step that comes next, computed on first asking. take() moves past it.
    const Step & peek();
    void take() { waiting_step_.reset(); }

    // Hands the steps that come to on_step until it returns false, max_tokens tokens were given out
    // (0 = no limit) or the generation ends. Returns false when on_step stopped it.
    bool generate(int64_t max_tokens, const std::function<bool(const Step &)> & on_step);

    // True while the next step takes no pass: what it is chosen from was decoded with a draft.
    bool next_is_ready() const { return drafter_ && !span_ && !sequence_.has_undecoded() && sequence_.came_ahead(); }

    // The same as peek(), but what goes wrong is left for peek(): then nullptr.
    const Step * peek_ready();

    // Of the drafts that came to their end: all their tokens, and those that were generated.
    int64_t tokens_drafted() const { return stats_.tokens_drafted; }
    int64_t tokens_accepted() const { return stats_.tokens_accepted; }

    void cancel();
    void reset() { reset_keep(0); }
    int32_t reset_keep(int32_t n_keep);

    // The conversation in a file, and back. On failure the stream is as it was; Error names the file.
    // What is restored counts as a prompt: samplers and grammar begin behind it.
    void save_slot(const std::string & path);
    void restore_slot(const std::string & path);

    void set_token_trie(std::string_view payload, int mode);
    void set_text_choices(std::string_view json, int mode);
    void clear_token_trie();

    // Samples otherwise from now on: `json` as parse_sampling() takes it, from the settings so far.
    void set_sampling(std::string_view json);

    // The samplers in the order they act, with ';' between them.
    std::string describe_chain() const { return (span_ ? "token_trie;" : "") + selector_.describe(); }

    // Writes the next span of a structured answer; its tokens do not count against max_tokens of the
    // configuration. On failure `result` holds what there is of it, and the stream can go on: behind the
    // value's text so far, or if there is none, as if the span had not been asked for.
    void fill(const SpanSpec & spec, FillResult & result);

    // What there is of the answer's tokens, of which a result tells beside its own.
    void tell_answer(FillResult & result) const;

    struct LeafResult {
        std::string name;
        double logprob;
    };
    // The leaf the last span ended on, if it did.
    const std::optional<LeafResult> & leaf() const { return leaf_; }

    // The logarithm of every leaf's probability, in payload order: of the active span, before its
    // first token, or of the last one that was asked.
    const std::vector<double> & leaf_scores();

    // The leaves of the active span, or of the scores there are.
    size_t n_leaves() const { return span_ && span_->has_trie() ? span_->trie().n_leaves() : scores_.size(); }

    eliza_llm_stream_stats_t stats() const;

private:
    void begin_anew();
    std::string slot_fingerprint() const;
    Step compute_step();
    Step finish(eliza_finish_reason reason);
    void go_on();
    void begin_span(Span span);
    bool healing_is_pending() const { return healed_ && sequence_.tokens().size() == healed_->position; }
    void take_back_healing();
    void count_strategy_of_one_path();
    std::optional<llama_token> choose_in_span();
    std::optional<llama_token> follow_best_leaf();
    llama_token take_without_pass(llama_token token);
    TokenSelector::SpanLogits span_logits(Turn & turn);
    bool run_tree(Turn & turn, TokenTrie::Node from);
    bool is_tree_worth_it(Turn & turn, const TokenTrie::Undecided & undecided);
    void decode_batch(Turn & turn, const TreeBatch & batch, TokenTrie::Node from);
    void learn_all_branches(Turn & turn);
    llama_token choose_freely();
    void decode_with_draft(Turn & turn);
    void compare_with_draft(llama_token token);
    void end_draft(std::optional<llama_token> instead);
    TokenSelector & selector() { return fill_selector_ ? *fill_selector_ : selector_; }
    void settle_known_text() { settle_known_text(sequence_.tokens().size()); }
    void settle_known_text(size_t end);
    struct KnownText;
    KnownText known_text_before(const SpanSpec & spec) const;
    void append_known_text(const KnownText & known);
    void shorten_known_text();
    void require_room(size_t n_tokens) const;
    std::string take_off_whole_characters(std::vector<llama_token> & tokens) const;
    void fill_choice(const SpanSpec & spec, const KnownText & known, FillResult & result);
    void fill_value(const SpanSpec & spec, const KnownText & known, FillResult & result);
    std::optional<llama_token> choose_in_text(TextConstraint & constraint, const SpanSpec & spec, FillResult & result);
    void end_span_if_over();
    void commit(llama_token token);
    template <typename Decode>
    auto with_context_full_noted(const Decode & decode_what_waits);
    void decode(Turn & turn, bool may_stop_before_head, const Progress & progress = {});
    bool may_restrict_head() const;
    const float * logits(Turn & turn);
    LogitsRow row(Turn & turn, bool whole, TokenSpan tokens);
    void throw_if_cancelled();
    void require_prompt() const;

    std::shared_ptr<Decoder> decoder_;
    const StreamConfig config_;
    const Options options_;
    const Progress progress_;

    Sequence sequence_;
    SamplingParams sampling_;
    TokenSelector selector_;
    Utf8Assembler utf8_;
    std::optional<Span> span_;  // while one is active
    struct Healed {
        llama_token token;
        size_t position;
    };
    std::optional<Healed> healed_;  // the prompt's last token, whose text the span has to spell again
    size_t text_to_skip_ = 0;       // bytes of it that are not to be given out a second time

    // Text of the answer from token `begin` to the end whose cut into tokens may still change, when
    // what follows is known.
    struct KnownText {
        size_t begin;
        std::string text;
    };
    std::optional<KnownText> known_;
    std::optional<TokenSelector> fill_selector_;  // of the span that is being filled
    size_t answer_begin_ = 0;                     // where the answer that is being filled begins
    size_t n_told_ = 0;                           // tokens that selector_ has been told of
    uint32_t n_filled_ = 0;                       // spans since the last reset
    std::optional<llama_token> drawn_;            // drawn where a span could end, and ended it
    std::optional<LeafResult> leaf_;
    std::vector<double> scores_;
    std::unique_ptr<Drafter> drafter_;
    struct Draft {
        std::vector<llama_token> tokens;
        size_t n_accepted = 0;
        int64_t begin = 0;  // where the first of them stands among the tokens since the prompt
    };
    std::optional<Draft> draft_;  // that is being compared with what is generated
    std::shared_ptr<VerifierHook> verifier_;
    std::optional<Step> waiting_step_;
    eliza_finish_reason finish_reason_ = ELIZA_FINISH_NONE;
    int64_t generated_since_prefill_ = 0;
    std::atomic<bool> cancelled_{false};
    Sequence::Cost cost_;
    eliza_llm_stream_stats_t stats_{};  // what is counted here; stats() fills in the rest
};

}  // namespace eliza
