#include "engine/stream.h"

#include <algorithm>
#include <utility>

#include "log.h"
#include "token_trie/rtkt.h"

namespace eliza {
namespace {

using End = TokenTrieConstraint::End;

Error no_prompt() { return invalid_argument("no prompt: prefill at least one token before generating"); }

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
    sequence_.append(tokens, n);
    try {
        Turn turn(decoder_->turns(), cancelled_);
        decode(turn, progress_);
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
    if (sequence_.tokens().empty()) {
        throw no_prompt();
    }
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

const float * Stream::logits(Turn & turn) {
    try {
        return sequence_.logits(turn, cost_);
    } catch (const ContextFull &) {
        finish_reason_ = ELIZA_FINISH_CONTEXT_FULL;
        throw;
    }
}

// What waits, for choices to come. The reference computes all logits in llama.cpp's own pass.
void Stream::decode(Turn & turn, const Progress & progress) {
    try {
        sequence_.decode(turn, cost_, may_restrict_head(), progress);
    } catch (const ContextFull &) {
        finish_reason_ = ELIZA_FINISH_CONTEXT_FULL;
        throw;
    }
}

bool Stream::may_restrict_head() const {
    return options_.restrict_head && options_.strategy != Strategy::token_by_token;
}

// The row after the last token, of which all is needed if `whole`.
LogitsRow Stream::row(Turn & turn, bool whole) {
    if (whole || !may_restrict_head()) {
        return LogitsRow(logits(turn));
    }
    decode(turn, {});
    return sequence_.row(turn, cost_);
}

// The next token of the span; nothing where the span ends before it.
std::optional<llama_token> Stream::choose_in_span() {
    TokenTrieConstraint & constraint = span_->constraint;
    if (span_->mode.best_leaf) {
        return follow_best_leaf();
    }
    const TokenSpan allowed = constraint.allowed();
    const bool forced = allowed.size == 1 && !constraint.may_end();
    if (forced && options_.strategy != Strategy::token_by_token) {
        ++stats_.tokens_forced;
        stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return allowed[0];
    }
    Turn turn(decoder_->turns(), cancelled_);
    if (forced) {
        logits(turn);
        ++stats_.tokens_forced;
        return allowed[0];
    }
    const auto row = span_logits(turn);
    const Stopwatch stopwatch(stats_.select_us);
    const auto choice = selector_.select_in_span(row, constraint, span_->mode.sampled);
    ++stats_.decisions;
    stats_.candidates_seen += constraint.may_end() ? decoder_->model().n_vocab() : static_cast<int64_t>(allowed.size);
    span_->logprob += choice.logprob;
    if (!choice.ended) {
        return choice.token;
    }
    // A draw from the whole vocabulary is the next token's own draw; an argmax is only a verdict.
    if (span_->mode.sampled) {
        drawn_ = choice.token;
    }
    constraint.clear();
    end_span_if_over();
    return std::nullopt;
}

// Mode 2: once all leaves are scored, the best one's tokens follow.
std::optional<llama_token> Stream::follow_best_leaf() {
    const std::vector<double> & scores = leaf_scores();
    const auto best = std::max_element(scores.begin(), scores.end());
    const TokenTrie & trie = span_->trie();
    const std::vector<Token> way = trie.path(trie.leaf_node(static_cast<int32_t>(best - scores.begin())));
    const size_t n_walked = trie.path(span_->constraint.node()).size();
    span_->logprob = *best;
    if (n_walked < way.size()) {
        ++stats_.tokens_forced;
        stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return way[n_walked];
    }
    span_->constraint.clear();
    end_span_if_over();
    return std::nullopt;
}

// The logits of the current decision, known already or decoded now, with those behind it where that
// is the faster way.
TokenSelector::SpanLogits Stream::span_logits(Turn & turn) {
    const TokenTrie::Node node = span_->constraint.node();
    if (span_->knows(node)) {
        stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return span_->logits_at(node);
    }
    if (sequence_.has_undecoded() && run_tree(turn, node)) {
        return span_->logits_at(node);
    }
    return span_->gather(row(turn, span_->needs_vocabulary(node)));
}

// Decodes what waits and all decisions that may follow in one pass; false where it was not done.
bool Stream::run_tree(Turn & turn, TokenTrie::Node from) {
    const TokenTrie::Undecided & undecided = span_->trie().undecided_below(from);
    const bool wanted = options_.strategy == Strategy::tree ||
                        (options_.strategy == Strategy::automatic && is_tree_worth_it(turn, undecided));
    if (!wanted || undecided.tokens == 0) {
        return false;
    }
    const std::vector<TreeBatch> batches = plan_tree(span_->trie(), from, decoder_->tree_limits());
    if (batches.size() != 1) {
        return false;  // too big for one pass: decide first, the rest will be smaller
    }
    try {
        decode_batch(turn, batches.front(), from);
    } catch (const ContextFull &) {
        return false;  // there may still be room for one path
    }
    ++stats_.tree_passes;
    return true;
}

bool Stream::is_tree_worth_it(Turn & turn, const TokenTrie::Undecided & undecided) {
    const TreeLimits limits = decoder_->tree_limits();
    if (undecided.tokens == 0 || static_cast<int32_t>(undecided.tokens) > limits.tokens ||
        static_cast<int32_t>(undecided.branches) > limits.rows ||
        static_cast<int32_t>(undecided.lanes) > limits.lanes) {
        return false;
    }
    const std::optional<PassCost> cost = decoder_->pass_cost(turn);
    if (!cost) {
        return false;
    }
    const auto waiting = static_cast<double>(sequence_.n_waiting());
    const double tree = cost->of(waiting + undecided.tokens, 1 + undecided.branches, undecided.lanes);
    const double tokens_a_pass = static_cast<double>(undecided.tokens) / undecided.branches;
    const double skip_ahead =
        cost->of(waiting, 1, 0) + static_cast<double>(undecided.passes) * cost->of(tokens_a_pass, 1, 0);
    return tree < skip_ahead;
}

void Stream::decode_batch(Turn & turn, const TreeBatch & batch, TokenTrie::Node from) {
    const auto needs_vocabulary = [&](const TreeBatch::Node & node) {
        return node.wants_logits && span_->needs_vocabulary(node.node);
    };
    const bool whole = !may_restrict_head() || span_->needs_vocabulary(from) ||
                       std::any_of(batch.nodes.begin(), batch.nodes.end(), needs_vocabulary);
    const auto keep_row = [&](int32_t place, const LogitsRow & row) {
        span_->keep_row(place < 0 ? from : batch.nodes[static_cast<size_t>(place)].node, row);
    };
    const auto preferred = [&] { return span_->knows(from) ? span_->preferred_place(batch, from) : -1; };
    sequence_.decode_tree(turn, cost_, batch, whole, keep_row, preferred);
}

const std::vector<double> & Stream::leaf_scores() {
    if (!scores_.empty()) {
        return scores_;
    }
    if (!span_ || span_->constraint.node() != TokenTrie::root) {
        throw invalid_argument("no scores: ask for them after setting a trie and before its first token");
    }
    if (sequence_.tokens().empty()) {
        throw no_prompt();
    }
    Turn turn(decoder_->turns(), cancelled_);
    learn_all_branches(turn);
    scores_ = span_->leaf_logprobs();
    return scores_;
}

void Stream::learn_all_branches(Turn & turn) {
    const TokenTrie & trie = span_->trie();
    if (trie.is_branch(TokenTrie::root) && !span_->knows(TokenTrie::root)) {
        span_->keep_row(TokenTrie::root, row(turn, span_->needs_vocabulary(TokenTrie::root)));
    }
    if (options_.strategy != Strategy::token_by_token) {
        try {
            for (const TreeBatch & batch : plan_tree(trie, TokenTrie::root, decoder_->tree_limits())) {
                decode_batch(turn, batch, TokenTrie::root);
                ++stats_.tree_passes;
            }
        } catch (const ContextFull &) {
            // There may still be room for one path at a time.
        }
    }
    // The slow way, branch by branch: where a tree does not fit or the model cannot fork, and as the
    // reference.
    const size_t n_before = sequence_.tokens().size();
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        if (!trie.is_branch(node) || span_->knows(node)) {
            continue;
        }
        const std::vector<Token> path = trie.path(node);
        sequence_.append(path.data(), path.size());
        try {
            span_->keep_row(node, LogitsRow(logits(turn)));
        } catch (...) {
            sequence_.truncate(n_before);
            throw;
        }
        sequence_.truncate(n_before);
    }
}

llama_token Stream::choose_freely() {
    const std::optional<llama_token> drawn = std::exchange(drawn_, std::nullopt);
    Turn turn(decoder_->turns(), cancelled_);
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
    if (selection < ELIZA_TRIE_ARGMAX || selection > ELIZA_TRIE_BEST_LEAF) {
        throw invalid_argument("trie mode " + std::to_string(mode) +
                               " is not 0 (argmax), 1 (sample) or 2 (best leaf), with or without 0x100 (stop at leaf)");
    }
    auto trie = TrieCache::shared().get(payload, decoder_->model().n_vocab());
    // A binary payload names no model.
    if (!options_.model_id.empty() && !is_rtkt(payload) && trie->model_id != options_.model_id) {
        throw invalid_argument("modelId: the payload is for \"" + trie->model_id + "\", the model is \"" +
                               options_.model_id + "\" (option model_id)");
    }
    SpanMode span_mode;
    span_mode.sampled = selection == ELIZA_TRIE_SAMPLE;
    span_mode.best_leaf = selection == ELIZA_TRIE_BEST_LEAF;
    span_mode.stop_at_leaf = (mode & ELIZA_TRIE_STOP_AT_LEAF) != 0;
    span_.emplace(TokenTrieConstraint(std::move(trie), options_.span_limit), span_mode, decoder_->model().n_vocab());
    scores_.clear();
    leaf_.reset();
    drawn_.reset();
    go_on();
    ++stats_.spans;
}

void Stream::clear_token_trie() {
    if (span_) {
        span_->constraint.clear();
        end_span_if_over();
    }
    if (finish_reason_ == ELIZA_FINISH_LEAF) {
        go_on();
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
    scores_.clear();
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
