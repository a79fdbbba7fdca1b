#include "engine/stream.h"

#include <utility>

#include "log.h"

namespace eliza {
namespace {

using End = TokenTrieConstraint::End;

// Adds the time it lives to a count of microseconds.
class Stopwatch {
public:
    explicit Stopwatch(int64_t & microseconds) : microseconds_(microseconds), start_(llama_time_us()) {}
    ~Stopwatch() { microseconds_ += llama_time_us() - start_; }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch & operator=(const Stopwatch &) = delete;

private:
    int64_t & microseconds_;
    int64_t start_;
};

}  // namespace

Stream::Stream(std::shared_ptr<Decoder> decoder, const StreamConfig & config, const Options & options,
               Progress progress)
    : decoder_(decoder),
      config_(config),
      options_(options),
      progress_(std::move(progress)),
      sequence_(decoder, config.slot_id, config.prompt_cache_key),
      selector_(decoder->model().vocab(), config.sampling, config.gbnf_grammar, options.grammar_order) {}

void Stream::throw_if_cancelled() {
    if (cancelled_.exchange(false)) {
        throw Error(ELIZA_ERR_CANCELLED, "cancelled");
    }
}

void Stream::prefill(const llama_token * tokens, size_t n) {
    throw_if_cancelled();
    if (n == 0) {
        return;
    }
    decoder_->model().check_tokens(tokens, n);
    const size_t n_before = sequence_.tokens().size();
    const eliza_finish_reason reason_before = finish_reason_;
    const auto n_ctx = static_cast<size_t>(decoder_->n_ctx());
    if (n_before + n > n_ctx) {
        throw invalid_argument("a prompt of " + std::to_string(n) + " tokens" +
                               (n_before > 0 ? " after " + std::to_string(n_before) : "") +
                               " does not fit the context of " + std::to_string(n_ctx) + " (option n_ctx)");
    }
    const Sequence::Cost cost_before = cost_;
    sequence_.append(tokens, n);
    try {
        const Decoder::Turn turn(*decoder_, cancelled_);
        logits(turn, progress_);
    } catch (...) {
        sequence_.truncate(n_before);
        finish_reason_ = reason_before;
        throw;
    }
    for (size_t i = 0; i < n; ++i) {
        selector_.accept_prompt(tokens[i]);
    }
    stats_.prompt_tokens += static_cast<int64_t>(n);
    stats_.prompt_tokens_reused += cost_.tokens_reused - cost_before.tokens_reused;
    stats_.prompt_passes += cost_.forward_passes - cost_before.forward_passes;
    drawn_.reset();
    finish_reason_ = ELIZA_FINISH_NONE;
    generated_since_prefill_ = 0;
}

const Stream::Step & Stream::peek() {
    throw_if_cancelled();
    if (!waiting_step_) {
        waiting_step_ = compute_step();
    }
    return *waiting_step_;
}

Stream::Step Stream::finish(eliza_finish_reason reason) {
    finish_reason_ = reason;
    return {std::nullopt, utf8_.finish(), true};
}

Stream::Step Stream::compute_step() {
    if (finish_reason_ != ELIZA_FINISH_NONE) {
        return {std::nullopt, "", true};
    }
    if (sequence_.tokens().empty()) {
        throw invalid_argument("no prompt: prefill at least one token before generating");
    }
    if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        return finish(ELIZA_FINISH_LENGTH);
    }

    const bool in_span = span_.has_value();
    const bool stop_at_leaf = in_span && span_->stop_at_leaf;
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

    Step step{token, utf8_.push(decoder_->model().piece(*token)), false};
    if (stop_at_leaf && !span_) {
        step.text += finish(ELIZA_FINISH_LEAF).text;
        step.final = true;
    } else if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        step.text += finish(ELIZA_FINISH_LENGTH).text;
        step.final = true;
    }
    return step;
}

const float * Stream::logits(const Decoder::Turn & turn, const Progress & progress) {
    try {
        return sequence_.logits(turn, cost_, progress);
    } catch (const ContextFull &) {
        finish_reason_ = ELIZA_FINISH_CONTEXT_FULL;
        throw;
    } catch (const Error & error) {
        if (error.status() == ELIZA_ERR_CANCELLED) {
            cancelled_ = false;
        }
        throw;
    }
}

// The next token of the span; nothing where the span ends before it.
std::optional<llama_token> Stream::choose_in_span() {
    TokenTrieConstraint & constraint = span_->constraint;
    const TokenSpan allowed = constraint.allowed();
    const bool forced = allowed.size == 1 && !constraint.may_end();

    if (forced && options_.strategy == Strategy::skip_ahead) {
        ++stats_.tokens_forced;
        stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return allowed[0];
    }
    const Decoder::Turn turn(*decoder_, cancelled_);
    const float * row = logits(turn);
    if (forced) {
        ++stats_.tokens_forced;
        return allowed[0];
    }
    const Stopwatch stopwatch(stats_.select_us);
    const auto choice = selector_.select_in_span(row, constraint, span_->sampled);
    ++stats_.decisions;
    stats_.candidates_seen += constraint.may_end() ? decoder_->model().n_vocab() : static_cast<int64_t>(allowed.size);
    span_->logprob += choice.logprob;
    if (!choice.ended) {
        return choice.token;
    }
    // A draw from the whole vocabulary is the next token's own draw; an argmax is only a verdict.
    if (span_->sampled) {
        drawn_ = choice.token;
    }
    constraint.clear();
    end_span_if_over();
    return std::nullopt;
}

llama_token Stream::choose_freely() {
    const std::optional<llama_token> drawn = std::exchange(drawn_, std::nullopt);
    const Decoder::Turn turn(*decoder_, cancelled_);
    const float * row = logits(turn);
    const Stopwatch stopwatch(stats_.select_us);
    return selector_.select(row, drawn);
}

void Stream::commit(llama_token token) {
    sequence_.append(token);
    selector_.accept(token);
    ++stats_.generated_tokens;
    ++generated_since_prefill_;
    if (span_) {
        span_->constraint.accept(token);
        end_span_if_over();
    }
}

void Stream::end_span_if_over() {
    const TokenTrieConstraint & constraint = span_->constraint;
    if (constraint.active()) {
        return;
    }
    if (const std::string * name = constraint.leaf_name()) {
        leaf_ = LeafResult{*name, span_->logprob};
    }
    if (constraint.end() == End::departed) {
        ++stats_.trie_departures;
    }
    if (constraint.end() == End::span_limit) {
        ++stats_.span_limit_hits;
        log(LogLevel::warning, "eliza: the token trie was not cleared within " + std::to_string(options_.span_limit) +
                                   " tokens (option span_limit) and lets go");
    }
    span_.reset();
}

void Stream::set_token_trie(std::string_view payload, int mode) {
    const int selection = mode & ~ELIZA_TRIE_STOP_AT_LEAF;
    if (selection != ELIZA_TRIE_ARGMAX && selection != ELIZA_TRIE_SAMPLE) {
        throw invalid_argument("trie mode " + std::to_string(mode) +
                               " is not 0 (argmax) or 1 (sample), with or without 0x100 (stop at leaf)");
    }
    auto trie = TrieCache::shared().get(payload, decoder_->model().n_vocab());
    if (!options_.model_id.empty() && trie->model_id != options_.model_id) {
        throw invalid_argument("modelId: the payload is for \"" + trie->model_id + "\", the model is \"" +
                               options_.model_id + "\" (option model_id)");
    }
    span_.emplace(Span{TokenTrieConstraint(std::move(trie), options_.span_limit), selection == ELIZA_TRIE_SAMPLE,
                       (mode & ELIZA_TRIE_STOP_AT_LEAF) != 0});
    leaf_.reset();
    drawn_.reset();
    finish_reason_ = ELIZA_FINISH_NONE;
    ++stats_.spans;
}

void Stream::clear_token_trie() {
    if (span_) {
        span_->constraint.clear();
        end_span_if_over();
    }
    if (finish_reason_ == ELIZA_FINISH_LEAF) {
        finish_reason_ = ELIZA_FINISH_NONE;
    }
}

int32_t Stream::reset_keep(int32_t n_keep) {
    if (n_keep < 0) {
        throw invalid_argument("n_keep " + std::to_string(n_keep) + " is negative");
    }
    sequence_.truncate(static_cast<size_t>(n_keep));
    selector_.reset();
    for (const llama_token token : sequence_.tokens()) {
        selector_.accept_prompt(token);
    }
    utf8_.finish();
    span_.reset();
    drawn_.reset();
    leaf_.reset();
    waiting_step_.reset();
    finish_reason_ = ELIZA_FINISH_NONE;
    generated_since_prefill_ = 0;
    cancelled_ = false;
    return static_cast<int32_t>(sequence_.tokens().size());
}

eliza_llm_stream_stats_t Stream::stats() const {
    eliza_llm_stream_stats_t stats = stats_;
    stats.forward_passes = cost_.forward_passes;
    stats.decode_us = cost_.microseconds;
    stats.n_past = static_cast<int32_t>(sequence_.tokens().size());
    stats.n_vocab = decoder_->model().n_vocab();
    stats.finish_reason = finish_reason_;
    stats.trie_active = span_.has_value() ? 1 : 0;
    return stats;
}

}  // namespace eliza
