#include "engine/stream/stream.h"

#include <algorithm>
#include <utility>

#include "stopwatch.h"

namespace eliza {

Stream::Stream(std::shared_ptr<Decoder> decoder, const StreamConfig & config, const Options & options,
               Progress progress, std::shared_ptr<VerifierHook> verifier)
    : decoder_(decoder),
      config_(config),
      options_(options),
      progress_(std::move(progress)),
      sequence_(decoder, config.slot_id, config.prompt_cache_key),
      sampling_(config.sampling),
      selector_(decoder->model().vocab(), config.sampling, config.gbnf_grammar,
                {options.grammar_order, options.grammar_triggers}),
      drafter_(config.draft.most > 0 && decoder->most_ahead() > 0 ? Drafter::make(config.draft, *decoder, options)
                                                                  : nullptr),
      verifier_(std::move(verifier)) {
    if (drafter_) {
        sequence_.set_on_pass(
            [this](const llama_token * text, size_t begin, size_t end) { drafter_->look_at_pass(text, begin, end); });
    }
}

void Stream::throw_if_cancelled() {
    if (cancelled_.exchange(false)) {
        throw Error(ELIZA_ERR_CANCELLED, "cancelled");
    }
}

void Stream::require_prompt() const {
    if (sequence_.tokens().empty()) {
        throw invalid_argument("no prompt: prefill at least one token before generating");
    }
}

void Stream::prefill(const llama_token * tokens, size_t n) {
    throw_if_cancelled();
    if (n == 0) {
        return;
    }
    if (healing_is_pending()) {
        throw invalid_argument(
            "choices that spell the prompt's last token anew are active: take their first token or clear them before "
            "prefilling");
    }
    const size_t n_before = sequence_.tokens().size();
    const eliza_finish_reason reason_before = finish_reason_;
    const auto n_ctx = static_cast<size_t>(decoder_->n_ctx());
    if (n > n_ctx - std::min(n_before, n_ctx)) {
        throw invalid_argument("a prompt of " + std::to_string(n) + " tokens" +
                               (n_before > 0 ? " after " + std::to_string(n_before) : "") +
                               " does not fit the context of " + std::to_string(n_ctx) + " (option n_ctx)");
    }
    decoder_->model().check_tokens(tokens, n);
    const Sequence::Cost cost_before = cost_;
    draft_.reset();
    sequence_.append(tokens, n);
    try {
        Turn turn(decoder_->turns(), cancelled_);
        decode(turn, may_restrict_head(), progress_);
    } catch (...) {
        sequence_.truncate(n_before);
        finish_reason_ = reason_before;
        throw;
    }
    if (span_) {
        span_->forget_rows();  // of the decisions behind the shorter prompt
    }
    scores_.clear();
    settle_known_text(n_before);
    for (size_t i = 0; i < n; ++i) {
        selector_.accept_prompt(tokens[i]);
    }
    n_told_ = answer_begin_ = sequence_.tokens().size();
    healed_.reset();
    stats_.prompt_tokens += static_cast<int64_t>(n);
    stats_.prompt_tokens_reused += cost_.tokens_reused - cost_before.tokens_reused;
    stats_.prompt_passes += cost_.forward_passes - cost_before.forward_passes;
    drawn_.reset();
    go_on();
    generated_since_prefill_ = 0;
}

void Stream::cancel() {
    cancelled_ = true;
    decoder_->turns().wake_waiting();
}

const Stream::Step & Stream::peek() {
    throw_if_cancelled();
    if (!waiting_step_) {
        waiting_step_ = compute_step();
    }
    return *waiting_step_;
}

const Stream::Step * Stream::peek_ready() {
    try {
        if (!waiting_step_ && !cancelled_) {
            waiting_step_ = compute_step();
        }
    } catch (const Error & error) {
        if (error.status() == ELIZA_ERR_CANCELLED) {
            cancelled_ = true;  // that was for the call to come
        }
        return nullptr;
    }
    return waiting_step_ ? &*waiting_step_ : nullptr;
}

bool Stream::generate(int64_t max_tokens, const std::function<bool(const Step &)> & on_step) {
    for (int64_t n = 0; max_tokens == 0 || n < max_tokens; ++n) {
        const Step step = peek();
        take();  // first: a step is given out once, whatever becomes of it
        if ((step.token || !step.text.empty()) && !on_step(step)) {
            return false;
        }
        if (step.final) {
            break;
        }
    }
    return true;
}

Stream::Step Stream::finish(eliza_finish_reason reason) {
    finish_reason_ = reason;
    return {std::nullopt, utf8_.finish(), true};
}

// The generation that had ended goes on; a step that was not taken yet is not its last any more.
void Stream::go_on() {
    finish_reason_ = ELIZA_FINISH_NONE;
    if (waiting_step_) {
        waiting_step_->final = false;
    }
}

Stream::Step Stream::compute_step() {
    if (finish_reason_ != ELIZA_FINISH_NONE) {
        return {std::nullopt, utf8_.finish(), true};
    }
    require_prompt();
    settle_known_text();
    if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        return finish(ELIZA_FINISH_LENGTH);
    }

    const bool in_span = span_.has_value();
    const bool stop_at_leaf = in_span && span_->mode.stop_at_leaf;
    std::optional<llama_token> token;
    if (in_span) {
        token = choose_in_span();
        if (!token && stop_at_leaf) {
            return finish(ELIZA_FINISH_LEAF);
        }
    }
    if (!token) {
        token = choose_freely();
        if (llama_vocab_is_eog(decoder_->model().vocab(), *token)) {
            return finish(ELIZA_FINISH_END);
        }
        ++stats_.tokens_sampled;
    }
    commit(*token);

    std::string bytes = decoder_->model().piece(*token);
    const size_t n_skipped = std::min(text_to_skip_, bytes.size());
    text_to_skip_ = span_ ? text_to_skip_ - n_skipped : 0;
    Step step{token, utf8_.push(std::string_view(bytes).substr(n_skipped)), false};
    if (stop_at_leaf && !span_) {
        step.text += finish(ELIZA_FINISH_LEAF).text;
        step.final = true;
    } else if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        step.text += finish(ELIZA_FINISH_LENGTH).text;
        step.final = true;
    }
    return step;
}

const float * Stream::logits(Turn & turn) {
    decode(turn, /*may_stop_before_head=*/false);
    return sequence_.logits(turn, cost_);
}

template <typename Decode>
auto Stream::with_context_full_noted(const Decode & decode_what_waits) {
    try {
        return decode_what_waits();
    } catch (const ContextFull &) {
        finish_reason_ = ELIZA_FINISH_CONTEXT_FULL;
        throw;
    }
}

// What waits, if anything does.
void Stream::decode(Turn & turn, bool may_stop_before_head, const Progress & progress) {
    with_context_full_noted([&] { sequence_.decode(turn, cost_, may_stop_before_head, progress); });
}

// The reference computes all logits in llama.cpp's own pass.
bool Stream::may_restrict_head() const {
    return options_.restrict_head && options_.strategy != Strategy::token_by_token;
}

// The row after the last token, of which all is needed if `whole`, else these tokens.
LogitsRow Stream::row(Turn & turn, bool whole, TokenSpan tokens) {
    if (!whole && may_restrict_head() && decoder_->head().can_stop()) {
        decode(turn, /*may_stop_before_head=*/true);
        return sequence_.row(turn, cost_);
    }
    if (!whole && options_.strategy != Strategy::token_by_token && decoder_->can_gather(tokens.size)) {
        return with_context_full_noted([&] { return sequence_.gathered_row(turn, cost_, tokens); });
    }
    return LogitsRow(logits(turn));
}

llama_token Stream::choose_freely() {
    const std::optional<llama_token> drawn = std::exchange(drawn_, std::nullopt);
    Turn turn(decoder_->turns(), cancelled_);
    if (drafter_ && sequence_.has_undecoded()) {
        decode_with_draft(turn);
    }
    const float * row = logits(turn);
    llama_token token = LLAMA_TOKEN_NULL;
    {
        const Stopwatch stopwatch(stats_.select_ns);
        token = selector_.select(row, drawn);
    }
    compare_with_draft(token);
    return token;
}

void Stream::commit(llama_token token) {
    sequence_.append(token);
    selector().accept(token);
    if (!fill_selector_) {
        n_told_ = sequence_.tokens().size();
    }
    ++stats_.generated_tokens;
    ++generated_since_prefill_;
    if (span_) {
        span_->constraint().accept(token);
        end_span_if_over();
    }
}

int32_t Stream::reset_keep(int32_t n_keep) {
    if (n_keep < 0) {
        throw invalid_argument("n_keep " + std::to_string(n_keep) + " is negative");
    }
    sequence_.truncate(static_cast<size_t>(n_keep));
    begin_anew();
    return static_cast<int32_t>(sequence_.tokens().size());
}

// All that is there counts as the prompt.
void Stream::begin_anew() {
    selector_.reset();
    for (const llama_token token : sequence_.tokens()) {
        selector_.accept_prompt(token);
    }
    n_told_ = answer_begin_ = sequence_.tokens().size();
    n_filled_ = 0;
    draft_.reset();
    known_.reset();
    healed_.reset();
    text_to_skip_ = 0;
    utf8_.finish();
    span_.reset();
    drawn_.reset();
    leaf_.reset();
    scores_.clear();
    waiting_step_.reset();
    finish_reason_ = ELIZA_FINISH_NONE;
    generated_since_prefill_ = 0;
    cancelled_ = false;
}

void Stream::set_sampling(std::string_view json) {
    SamplingParams params = parse_sampling(sampling_, json);
    selector_.set_sampling(params, sequence_.tokens().data(), std::min(n_told_, sequence_.tokens().size()));
    sampling_ = std::move(params);
}

eliza_llm_stream_stats_t Stream::stats() const {
    eliza_llm_stream_stats_t stats = stats_;
    stats.forward_passes = cost_.forward_passes;
    stats.decode_us = cost_.microseconds;
    stats.bytes_copied = cost_.bytes_copied;
    stats.select_us = stats.select_ns / 1000;
    stats.n_past = static_cast<int32_t>(sequence_.tokens().size());
    stats.n_vocab = decoder_->model().n_vocab();
    stats.finish_reason = finish_reason_;
    stats.trie_active = span_.has_value() ? 1 : 0;
    return stats;
}

}  // namespace eliza
