// One generation: takes a prompt, returns tokens, and chooses labels on the way.
//
// The ABI's functions that generate are loops over peek() and take(). Only cancel() may be called while another thread
// uses the stream.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "eliza/eliza_inference.h"
#include "engine/answer/answer.h"
#include "engine/base/options.h"
#include "engine/choice/choice.h"
#include "engine/choice/endings.h"
#include "engine/choice/label_search.h"
#include "engine/choice/text_search.h"
#include "engine/draft/draft.h"
#include "engine/pass/sequence.h"
#include "engine/stream/stop_strings.h"
#include "engine/stream/token_logprobs.h"
#include "sampling/legal_tokens.h"
#include "sampling/token_selector.h"
#include "utf8_assembler.h"

namespace eliza {

// An eliza_llm_stream_config_t whose defaults and strings are resolved.
struct StreamConfig {
    int32_t max_tokens = 0;
    SamplingParams sampling;
    std::string gbnf_grammar;
    SlotWish slot;
    DraftConfig draft;
};

class Stream {
public:
    Stream(std::shared_ptr<Decoder> decoder, const StreamConfig & config, const Options & options, Progress progress,
           std::shared_ptr<VerifierHook> verifier);

    // Appends tokens and decodes them. After an error the conversation is unchanged.
    void prefill(const llama_token * tokens, size_t n);

    // The same, but the tokens are decoded only when something needs their logits, in one pass with what follows them.
    // A stream that reports its progress decodes them at once.
    void append(const llama_token * tokens, size_t n);

    // The same, and writes the log-probability of each token and of the n_top most probable tokens at its position to
    // `out`, which has room for `cap` entries.
    void prefill_logprobs(const llama_token * tokens, size_t n, int32_t n_top, eliza_token_logprob_t * out, size_t cap);

    // How far a call may generate.
    struct StepLimits {
        size_t n_steps;
        int64_t most_us;  // no step begins after this time
    };

    // What comes next: a token, the end, or both.
    struct Step {
        std::optional<llama_token> token;
        std::string text;
        bool final = false;
        bool completes_stop = false;  // a stop string ends in `text`
    };

    // The next step, computed by the first call. take() removes it. If the thread that runs the passes can choose the
    // tokens, the call computes further steps up to `limits`.
    const Step & peek(const StepLimits & limits = StepLimits{1, INT64_MAX});
    void take();

    // The most tokens that may be generated after a prompt; 0 = no limit.
    int32_t max_tokens() const { return config_.max_tokens; }

    // Calls on_step with each step until on_step returns false, until max_tokens tokens are generated (0 = no limit),
    // or until the generation ends. Returns false if on_step returned false.
    bool generate(int64_t max_tokens, const std::function<bool(const Step &)> & on_step);

    // True if the next step needs no forward pass: its token is forced, or its logits were computed with a draft.
    bool next_is_ready() const {
        const bool from_draft =
            draft_.is_on() && !choice_.is_active() && !sequence_.has_undecoded() && sequence_.came_ahead();
        return (!forced_.empty() && skips_forced_passes()) || from_draft;
    }

    // The same as peek(), but returns nullptr if there is an error, which the next peek() reports.
    const Step * peek_ready(const StepLimits & limits = StepLimits{1, INT64_MAX});

    // True if a step has been computed and not been taken yet.
    bool has_step() const { return !steps_.empty(); }

    // The number of tokens in all drafts that have ended, and how many of these tokens were then generated.
    int64_t tokens_drafted() const { return counts_.tokens_drafted; }
    int64_t tokens_accepted() const { return counts_.tokens_accepted; }

    void cancel();
    void reset() { reset_keep(0); }
    int32_t reset_keep(int32_t n_keep);

    // Save the conversation in a file, and restore it. After an error, which names the file, the stream is unchanged. A
    // restored conversation counts as a prompt: samplers and the grammar begin after it.
    void save_slot(const std::string & path);
    void restore_slot(const std::string & path);

    void set_token_trie(std::string_view payload, int mode);
    void set_choices(const PreparedChoices & choices, int mode);
    void set_text_choices(std::string_view json, int mode);
    void clear_token_trie();

    // Restricts the next token to the tokens in `bits`, in the format of LegalTokens. Any other change of the
    // conversation removes the mask.
    void set_token_mask(const uint32_t * bits, size_t n_words);

    // Makes `tokens` the next n tokens of the generation. Any other change of the conversation removes them.
    void set_forced_tokens(const llama_token * tokens, size_t n);

    // Removes the mask and the forced tokens.
    void clear_token_mask() {
        mask_.reset();
        forced_.clear();
    }

    // Runs the forward pass that the next token needs, if it needs one.
    void decode();

    // Changes the sampling settings that `json` names, in the format of parse_sampling().
    void set_sampling(std::string_view json);

    // Returns the names of the samplers in the order in which they act, separated by ';'.
    std::string describe_chain() const { return (choice_.is_active() ? "token_trie;" : "") + selector_.describe(); }

    // Marks the steps that complete one of these strings. peek() computes no step ahead of such a step.
    void set_stops(std::vector<std::string> strings);

    // Report log-probabilities for all following tokens; see TokenLogprobs.
    void set_logprobs(int32_t n_top) { logprobs_.set(n_top, decoder_->model().n_vocab()); }
    size_t take_logprobs(eliza_token_logprob_t * out, size_t cap) { return logprobs_.take(out, cap); }

    // Writes the next span of a structured answer. Its tokens do not count towards max_tokens of the configuration.
    // The stream remains usable after an error; see Answer.
    void fill(const SpanSpec & spec, FillResult & result);
    void tell_answer(FillResult & result) const { answer_.tell(result); }

    // Results of the active or last span; see Choice.
    const std::optional<Choice::LeafResult> & leaf() const { return choice_.leaf(); }
    const std::vector<double> & leaf_scores();
    size_t n_leaves() const { return choice_.n_leaves(); }

    // Returns the scores of the labels after each ending. The conversation does not change. Throws Error.
    std::vector<EndingScores> score_endings(const std::vector<Ending> & endings, WantedScores wanted);

    // Returns the most probable labels after an ending; see LabelSearch. The conversation does not change. Throws
    // Error.
    Ranking rank(const Ending & ending, LabelRule rule, const RankWish & wish);

    // The same directly after the conversation, for labels that any tokens may spell; see TextSearch.
    Ranking rank_texts(const std::shared_ptr<const TextChoices> & labels, const RankWish & wish);
    std::shared_ptr<const TextChoices> parse_texts(std::string_view json) const;

    eliza_llm_stream_stats_t stats() const;

private:
    std::unique_ptr<Grammar> new_grammar();
    void start_again();
    void begin_span(Span span);
    std::string slot_fingerprint() const;
    void compute(const StepLimits & limits);
    void keep_error();
    void compute_steps(const StepLimits & limits);
    Step compute_step();
    Step step_of(llama_token token);
    bool completes_stop(const Step & step);
    bool token_waits() const;
    bool chooses_quickly() const;
    bool may_generate_ahead() const;
    Step finish(eliza_finish_reason reason);
    void resume();
    llama_token choose_freely();
    llama_token choose_from_mask();
    llama_token next_forced();
    void settle(llama_token only);
    // The reference strategy and log-probabilities need the logits of forced tokens.
    bool skips_forced_passes() const { return options_.strategy != Strategy::token_by_token && !logprobs_.is_on(); }
    void require_no_span(const std::string & doing) const;
    void begin_ranking();
    void require_taken(bool is_taken, const std::string & doing) const;
    void require_free_choice(const std::string & what) const;
    void commit(llama_token token);
    void settle_fixed_text(size_t end);
    template <typename Use>
    decltype(auto) noting_a_full_context(const Use & use);
    void append_prompt(const llama_token * tokens, size_t n, const std::function<void()> & append);
    void require_prompt() const;

    CancelFlag cancelled_;
    const std::shared_ptr<Decoder> decoder_;
    const StreamConfig config_;
    const Options options_;
    const Progress progress_;

    Sequence sequence_;
    StreamCounts & counts_ = sequence_.counts();
    SamplingParams sampling_;
    TokenSelector selector_;
    size_t n_accepted_ = 0;  // tokens that the selector has accepted
    Utf8Assembler utf8_;
    StopStrings stops_;
    Choice choice_;
    std::optional<LegalTokens> mask_;  // of the next token
    std::deque<llama_token> forced_;   // the next tokens
    Answer answer_;
    Draft draft_;
    TokenLogprobs logprobs_;
    std::optional<LabelSearch> search_;      // the last one
    std::optional<TextSearch> text_search_;  // the last one

    std::deque<Step> steps_;    // computed and not taken yet
    std::exception_ptr error_;  // to be reported after them
    eliza_finish_reason finish_reason_ = ELIZA_FINISH_NONE;
    int64_t generated_since_prefill_ = 0;
};

}  // namespace eliza
