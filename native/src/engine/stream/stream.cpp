#include "engine/stream/stream.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/cache/slot_file.h"
#include "grammar/llama_grammar.h"
#include "json_input.h"
#include "stopwatch.h"
#include "token_piece.h"

namespace eliza {

Stream::Stream(std::shared_ptr<Decoder> decoder, const StreamConfig & config, const Options & options,
               Progress progress, std::shared_ptr<VerifierHook> verifier)
    : decoder_(std::move(decoder)),
      config_(config),
      options_(options),
      progress_(std::move(progress)),
      sequence_(decoder_, config.slot, cancelled_),
      sampling_(config.sampling),
      selector_(decoder_->model().vocab(), config.sampling, new_grammar(), options.grammar_order),
      choice_(sequence_, options_),
      answer_(sequence_, choice_, options_),
      draft_(config.draft, sequence_, options_, std::move(verifier)) {}

std::unique_ptr<Grammar> Stream::new_grammar() {
    if (config_.gbnf_grammar.empty()) {
        return nullptr;
    }
    if (options_.grammar_by_llama_cpp) {
        if (options_.grammar_triggers) {
            throw invalid_argument("option grammar_engine: llama.cpp's grammars take no grammar_triggers here");
        }
        return std::make_unique<LlamaGrammar>(decoder_->model().grammar_texts(), config_.gbnf_grammar);
    }
    return std::make_unique<StatesGrammar>(decoder_->model().grammar_texts(), config_.gbnf_grammar,
                                           options_.grammar_limits(cancelled_), options_.grammar_triggers);
}

// The call that fills the context throws. Later calls return the end of the generation.
template <typename Use>
decltype(auto) Stream::noting_a_full_context(const Use & use) {
    try {
        return use();
    } catch (const ContextFull &) {
        finish_reason_ = ELIZA_FINISH_CONTEXT_FULL;
        throw;
    }
}

void Stream::require_prompt() const {
    if (sequence_.tokens().empty()) {
        throw invalid_argument("no prompt: prefill at least one token before generating");
    }
}

void Stream::prefill(const llama_token * tokens, size_t n) {
    append_prompt(tokens, n, [&] {
        sequence_.append_prompt(tokens, n);
        sequence_.decode(options_.restricts_head() ? Rows::some : Rows::whole, progress_);
    });
}

void Stream::append(const llama_token * tokens, size_t n) {
    if (progress_) {
        prefill(tokens, n);
        return;
    }
    append_prompt(tokens, n, [&] { sequence_.append_prompt(tokens, n); });
}

void Stream::prefill_logprobs(const llama_token * tokens, size_t n, int32_t n_top, eliza_token_logprob_t * out,
                              size_t cap) {
    const int32_t n_vocab = decoder_->model().n_vocab();
    TokenLogprobs logprobs;
    logprobs.set(n_top, n_vocab);
    if (n_top < 0) {
        throw invalid_argument("n_top: expected 0 or more, got " + std::to_string(n_top));
    }
    if (const size_t n_entries = static_cast<size_t>(n_top) + 1; n > cap / n_entries) {
        throw invalid_argument("cap: expected room for " + std::to_string(n) + " times " + std::to_string(n_entries) +
                               " entries, got " + std::to_string(cap));
    }
    const auto keep = [&](const float * row, llama_token token) {
        logprobs.look_at(row, n_vocab, token);
        logprobs.keep(token);
    };
    append_prompt(tokens, n, [&] {
        if (sequence_.tokens().empty()) {
            logprobs.keep(tokens[0]);
        } else {
            keep(sequence_.logits(), tokens[0]);
        }
        const auto most = static_cast<size_t>(decoder_->most_rows());
        std::vector<float> rows;
        for (size_t begin = 0; begin < n; begin += most) {
            const size_t n_rows = std::min(most, n - begin);
            sequence_.append_prompt(tokens + begin, n_rows);
            rows.clear();
            // Only copies: other requests wait during the callback.
            sequence_.decode_rows(n_rows, [&](size_t, const LogitsRow & row) {
                rows.insert(rows.end(), row.whole(), row.whole() + n_vocab);
            });
            for (size_t i = 0; i < n_rows && begin + i + 1 < n; ++i) {
                keep(rows.data() + i * static_cast<size_t>(n_vocab), tokens[begin + i + 1]);
            }
            if (progress_) {
                progress_("prefill", static_cast<float>(begin + n_rows) / static_cast<float>(n));
            }
        }
    });
    logprobs.tell();
    logprobs.take(out, cap);
}

// Appends a prompt with a function that may also decode it.
void Stream::append_prompt(const llama_token * tokens, size_t n, const std::function<void()> & append) {
    cancelled_.throw_if_set();
    if (n == 0) {
        return;
    }
    if (choice_.healing_is_pending()) {
        throw invalid_argument(
            "a span that replaces the prompt's last token has no token yet: before prefilling, generate the span's "
            "first token or clear the span");
    }
    const size_t n_before = sequence_.tokens().size();
    decoder_->check_prompt(n_before, tokens, n);
    draft_.drop();
    try {
        append();
    } catch (...) {
        sequence_.truncate(n_before);
        throw;
    }
    choice_.prompt_changed();
    clear_token_mask();
    settle_fixed_text(n_before);
    for (size_t i = 0; i < n; ++i) {
        selector_.accept_prompt(tokens[i]);
    }
    n_accepted_ = sequence_.tokens().size();
    answer_.begin_after_prompt(/*from_start=*/false);
    counts_.prompt_tokens += static_cast<int64_t>(n);
    resume();
    stops_.forget();
    generated_since_prefill_ = 0;
}

void Stream::cancel() {
    cancelled_.set();
    decoder_->queue().wake_cancelled();
}

const Stream::Step & Stream::peek(const StepLimits & limits) {
    cancelled_.throw_if_set();
    if (steps_.empty()) {
        compute(limits);
    }
    return steps_.front();
}

void Stream::take() {
    steps_.pop_front();
    logprobs_.tell();
}

const Stream::Step * Stream::peek_ready(const StepLimits & limits) {
    if (steps_.empty() && !error_ && !cancelled_.is_set()) {
        try {
            compute(limits);
        } catch (...) {
            keep_error();
        }
    }
    return steps_.empty() ? nullptr : &steps_.front();
}

// Computes one or more steps. If an error occurs after the first of them, the next call of compute() throws it.
void Stream::compute(const StepLimits & limits) {
    if (error_) {
        std::rethrow_exception(std::exchange(error_, nullptr));
    }
    try {
        noting_a_full_context([&] { compute_steps(limits); });
    } catch (...) {
        if (steps_.empty()) {
            throw;
        }
        keep_error();
    }
}

// Keeps the error that is being handled for the next call that computes. A cancel is set again, because prefill() and
// fill() must report it, too.
void Stream::keep_error() {
    error_ = std::current_exception();
    try {
        throw;
    } catch (const Error & error) {
        if (error.status() == ELIZA_ERR_CANCELLED) {
            error_ = nullptr;
            cancelled_.set();
        }
    } catch (...) {
    }
}

bool Stream::generate(int64_t max_tokens, const std::function<bool(const Step &)> & on_step) {
    for (int64_t n = 0; max_tokens == 0 || n < max_tokens; ++n) {
        const Step step = peek();
        take();  // before the callback, so that a step is never returned twice
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
    clear_token_mask();
    finish_reason_ = reason;
    return {std::nullopt, utf8_.finish(), true};
}

// Continues a generation that had ended; a step that was not taken yet is no longer the last one.
void Stream::resume() {
    finish_reason_ = ELIZA_FINISH_NONE;
    error_ = nullptr;
    for (Step & step : steps_) {
        step.final = false;
    }
}

// True if a generated token has not been taken yet.
bool Stream::token_waits() const {
    return std::any_of(steps_.begin(), steps_.end(), [](const Step & step) { return step.token.has_value(); });
}

// True if the thread that runs the passes should choose this stream's tokens. It does so for one stream after the
// other, while no pass runs. With samplers this must not take long compared with the passes: on a machine with many
// cores, the streams' own threads choose faster.
bool Stream::chooses_quickly() const {
    constexpr int64_t measurable_tokens = 4, part_of_a_pass = 5;
    if (selector_.is_plain_argmax()) {
        return true;
    }
    if (!selector_.uses_only_samplers() || counts_.tokens_sampled < measurable_tokens) {
        return false;
    }
    const int64_t us_a_token = counts_.select_ns / 1000 / counts_.tokens_sampled;
    return us_a_token * counts_.sequences < counts_.decode_us / part_of_a_pass;
}

// True if the next tokens are chosen freely and quickly.
bool Stream::may_generate_ahead() const {
    const bool is_at_limit = config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens;
    return finish_reason_ == ELIZA_FINISH_NONE && !is_at_limit && !sequence_.tokens().empty() &&
           sequence_.has_undecoded() && chooses_quickly() && !choice_.is_active() && !mask_ && forced_.empty() &&
           !draft_.is_on() && !logprobs_.is_on();
}

void Stream::compute_steps(const StepLimits & limits) {
    if (!may_generate_ahead()) {
        steps_.push_back(compute_step());
        return;
    }
    settle_fixed_text(sequence_.tokens().size());
    const int64_t start = llama_time_us();
    sequence_.decode_each([&](const float * logits) {
        llama_token token = LLAMA_TOKEN_NULL;
        {
            const Stopwatch stopwatch(counts_.select_ns);
            token = selector_.select(logits, choice_.take_drawn());
        }
        const bool is_end = llama_vocab_is_eog(decoder_->model().vocab(), token);
        counts_.tokens_sampled += is_end ? 0 : 1;
        steps_.push_back(is_end ? finish(ELIZA_FINISH_END) : step_of(token));
        return !steps_.back().final && !steps_.back().completes_stop && steps_.size() < limits.n_steps &&
               llama_time_us() - start < limits.most_us;
    });
}

Stream::Step Stream::compute_step() {
    if (finish_reason_ != ELIZA_FINISH_NONE) {
        return {std::nullopt, utf8_.finish(), true};
    }
    require_prompt();
    // A token that was chosen after a full context is the last one. Forced tokens need no pass, which would notice it.
    if (const size_t n = sequence_.tokens().size(); n > static_cast<size_t>(decoder_->n_ctx())) {
        throw ContextFull("no room for 1 more tokens after " + std::to_string(n - 1) + " (option n_ctx is " +
                          std::to_string(decoder_->n_ctx()) + ")");
    }
    settle_fixed_text(sequence_.tokens().size());
    if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        return finish(ELIZA_FINISH_LENGTH);
    }

    logprobs_.begin_token();
    std::optional<llama_token> token;
    if (choice_.is_active()) {
        const bool stop_at_leaf = choice_.stops_at_leaf();
        token = choice_.next(selector_);
        if (!token && stop_at_leaf) {
            return finish(ELIZA_FINISH_LEAF);
        }
    }
    if (!token) {
        const bool is_free = forced_.empty() && !mask_;
        token = !forced_.empty() ? next_forced() : mask_ ? choose_from_mask() : choose_freely();
        if (llama_vocab_is_eog(decoder_->model().vocab(), *token)) {
            return finish(ELIZA_FINISH_END);
        }
        counts_.tokens_sampled += is_free ? 1 : 0;
    }
    return step_of(*token);
}

// Commits a token that does not end the generation.
Stream::Step Stream::step_of(llama_token token) {
    const bool stop_at_leaf = choice_.stops_at_leaf();
    const std::string bytes = decoder_->model().piece(token);
    commit(token);
    Step step{token, utf8_.push(std::string_view(bytes).substr(choice_.skip_text(bytes.size()))), false};
    if (stop_at_leaf && !choice_.is_active()) {
        step.text += finish(ELIZA_FINISH_LEAF).text;
        step.final = true;
    } else if (config_.max_tokens > 0 && generated_since_prefill_ >= config_.max_tokens) {
        step.text += finish(ELIZA_FINISH_LENGTH).text;
        step.final = true;
    }
    step.completes_stop = completes_stop(step);
    return step;
}

// A control token has no text. It is a stop if its name is a stop string.
bool Stream::completes_stop(const Step & step) {
    if (stops_.push(step.text)) {
        return true;
    }
    if (stops_.is_empty() || !step.token || !step.text.empty()) {
        return false;
    }
    const Model & model = decoder_->model();
    return model.piece(*step.token).empty() &&
           stops_.contains(token_piece(model.vocab(), *step.token, /*special=*/true));
}

llama_token Stream::choose_freely() {
    if (draft_.is_on() && sequence_.has_undecoded()) {
        const bool is_limited = config_.max_tokens > 0;
        draft_.decode(is_limited ? config_.max_tokens - generated_since_prefill_ - 1 : INT32_MAX,
                      generated_since_prefill_);
    }
    const float * row = sequence_.logits();
    // Not earlier: if the pass was cancelled, the next call still uses the drawn token.
    const std::optional<llama_token> drawn = choice_.take_drawn();
    llama_token token = LLAMA_TOKEN_NULL;
    {
        const Stopwatch stopwatch(counts_.select_ns);
        token = selector_.select(row, drawn);
    }
    if (logprobs_.is_on()) {
        logprobs_.look_at(row, decoder_->model().n_vocab(), token);
    }
    draft_.compare(token);
    return token;
}

llama_token Stream::next_forced() {
    const llama_token token = forced_.front();
    settle(token);
    forced_.pop_front();
    return token;
}

// Counts a token that has no alternative. No sampler draws it, so that looking at its logits does not change later
// draws.
void Stream::settle(llama_token only) {
    if (skips_forced_passes()) {
        sequence_.count_forced();
    } else {
        const float * row = sequence_.logits();
        if (logprobs_.is_on()) {
            logprobs_.look_at(row, decoder_->model().n_vocab(), only);
        }
        ++counts_.tokens_forced;
    }
    choice_.take_drawn();  // discard it: it was drawn without this restriction
}

llama_token Stream::choose_from_mask() {
    if (mask_->size() == 1) {
        settle(mask_->tokens()[0]);
        return mask_->tokens()[0];
    }
    const bool is_large = mask_->size() > TokenSelector::few_tokens;
    const bool whole = is_large || logprobs_.is_on();
    const TokenSpan few = is_large ? TokenSpan{nullptr, 0} : mask_->tokens();
    const LogitsRow row = whole ? LogitsRow(sequence_.logits()) : sequence_.row_of_few(options_);
    choice_.take_drawn();  // discard it: it was drawn without this restriction
    llama_token token = LLAMA_TOKEN_NULL;
    {
        const Stopwatch stopwatch(counts_.select_ns);
        if (is_large) {
            token = selector_.select_in_mask(row.whole(), *mask_);
        } else {
            std::vector<float> logits(few.size);
            row.gather(few, logits.data());
            token = selector_.select_of_legal(logits.data(), few);
        }
    }
    if (logprobs_.is_on()) {
        logprobs_.look_at(row.whole(), decoder_->model().n_vocab(), token);
    }
    ++counts_.decisions;
    counts_.candidates_seen += static_cast<int64_t>(mask_->size());
    return token;
}

void Stream::commit(llama_token token) {
    mask_.reset();
    sequence_.append(token);
    selector_.accept(token);
    logprobs_.keep(token);
    n_accepted_ = sequence_.tokens().size();
    ++counts_.generated_tokens;
    ++generated_since_prefill_;
    choice_.accept(token);
}

// Passes fixed text to the selector when its tokenization can no longer change.
void Stream::settle_fixed_text(size_t end) {
    for (; n_accepted_ < end; ++n_accepted_) {
        selector_.accept(sequence_.tokens()[n_accepted_]);
    }
    answer_.settle();
}

void Stream::set_token_trie(std::string_view payload, int mode) { begin_span(choice_.parse_token_trie(payload, mode)); }

void Stream::set_choices(const PreparedChoices & choices, int mode) {
    choices.check_model(decoder_->model());
    begin_span(choice_.span_of(choices, mode));
}

void Stream::set_text_choices(std::string_view json, int mode) {
    begin_span(choice_.parse_text_choices(json, mode, selector_.has_grammar()));
}

void Stream::begin_span(Span span) {
    clear_token_mask();
    settle_fixed_text(sequence_.tokens().size());
    choice_.begin(std::move(span));
    draft_.drop();
    resume();
    ++counts_.spans;
}

void Stream::clear_token_trie() {
    choice_.clear();
    if (finish_reason_ == ELIZA_FINISH_LEAF) {
        resume();
    }
}

void Stream::require_no_span(const std::string & doing) const {
    if (choice_.is_active()) {
        throw invalid_argument("a span of choices is active: clear it before " + doing);
    }
}

void Stream::require_taken(bool is_taken, const std::string & doing) const {
    if (!is_taken) {
        throw invalid_argument("a generated token has not been taken yet: take it before " + doing);
    }
}

// Throws Error if the caller may not restrict the next token by `what`.
void Stream::require_free_choice(const std::string & what) const {
    require_no_span("setting " + what);
    if (selector_.has_grammar()) {
        throw invalid_argument("the stream has a grammar and does not accept " + what);
    }
    require_taken(!token_waits(), "setting " + what);
}

void Stream::set_token_mask(const uint32_t * bits, size_t n_words) {
    require_free_choice("a token mask");
    mask_ = LegalTokens(bits, n_words, decoder_->model().n_vocab());
    forced_.clear();
    draft_.drop();
}

void Stream::set_forced_tokens(const llama_token * tokens, size_t n) {
    require_free_choice("forced tokens");
    decoder_->model().check_tokens(tokens, n);
    forced_.assign(tokens, tokens + n);
    mask_.reset();
    draft_.drop();
}

void Stream::set_stops(std::vector<std::string> strings) {
    stops_.set(std::move(strings));
    for (Step & step : steps_) {
        step.completes_stop = completes_stop(step);
    }
}

void Stream::decode() {
    cancelled_.throw_if_set();
    require_prompt();
    if (steps_.empty() && finish_reason_ == ELIZA_FINISH_NONE && sequence_.has_undecoded()) {
        // The mask of the next token, which may be computed meanwhile, decides which logits are needed.
        const Rows rows = options_.restricts_head() && !logprobs_.is_on() ? Rows::some : Rows::whole;
        sequence_.decode(rows);
    }
}

const std::vector<double> & Stream::leaf_scores() {
    if (choice_.is_active()) {
        require_prompt();
    }
    return choice_.leaf_scores();
}

std::vector<EndingScores> Stream::score_endings(const std::vector<Ending> & endings, WantedScores wanted) {
    cancelled_.throw_if_set();
    require_prompt();
    require_no_span("scoring endings");
    require_taken(!has_step(), "scoring endings");
    for (size_t i = 0; i < endings.size(); ++i) {
        require_fit(*decoder_, sequence_.tokens().size(), endings[i], at("endings", i));
    }
    draft_.drop();
    return eliza::score_endings(sequence_, options_, endings, wanted);
}

void Stream::begin_ranking() {
    cancelled_.throw_if_set();
    require_prompt();
    require_no_span("ranking labels");
    require_taken(!has_step(), "ranking labels");
    draft_.drop();
}

Ranking Stream::rank(const Ending & ending, LabelRule rule, const RankWish & wish) {
    begin_ranking();
    require_fit(*decoder_, sequence_.tokens().size(), ending, "the prompt with the longest label");
    LabelSearch::Place place{ending.tokens, ending.choices->trie(), rule};
    if (!search_ || !search_->is_for(place)) {
        search_.emplace(sequence_, options_, std::move(place));
    }
    return search_->rank(wish);
}

std::shared_ptr<const TextChoices> Stream::parse_texts(std::string_view json) const {
    return decoder_->model().text_constraints().choices(json, "");
}

Ranking Stream::rank_texts(const std::shared_ptr<const TextChoices> & labels, const RankWish & wish) {
    begin_ranking();
    if (!text_search_ || !text_search_->is_for(*labels)) {
        text_search_.emplace(sequence_, options_, labels, decoder_->model().end_tokens());
    }
    return text_search_->rank(wish);
}

void Stream::fill(const SpanSpec & spec, FillResult & result) {
    cancelled_.throw_if_set();
    require_prompt();
    require_no_span("filling");
    require_taken(!has_step(), "filling");
    resume();
    draft_.drop();
    clear_token_mask();
    stops_.forget();
    noting_a_full_context([&] { answer_.fill(spec, sampling_, result); });
}

int32_t Stream::reset_keep(int32_t n_keep) {
    if (n_keep < 0) {
        throw invalid_argument("n_keep " + std::to_string(n_keep) + " is negative");
    }
    sequence_.truncate(static_cast<size_t>(n_keep));
    start_again();
    return static_cast<int32_t>(sequence_.tokens().size());
}

// Starts a new generation. The whole conversation counts as the prompt.
void Stream::start_again() {
    selector_.reset();
    for (const llama_token token : sequence_.tokens()) {
        selector_.accept_prompt(token);
    }
    n_accepted_ = sequence_.tokens().size();
    choice_.forget();
    clear_token_mask();
    answer_.begin_after_prompt(/*from_start=*/true);
    draft_.drop();
    logprobs_.forget();
    utf8_.finish();
    stops_.forget();
    steps_.clear();
    error_ = nullptr;
    finish_reason_ = ELIZA_FINISH_NONE;
    generated_since_prefill_ = 0;
    cancelled_.clear();
}

std::string Stream::slot_fingerprint() const {
    return decoder_->model().fingerprint() + " " + decoder_->cache().describe();
}

void Stream::save_slot(const std::string & path) {
    cancelled_.throw_if_set();
    require_prompt();
    require_taken(!token_waits(), "saving");
    if (choice_.healing_is_pending()) {
        throw invalid_argument("a span that replaces the prompt's last token has no token yet: clear it before saving");
    }
    SlotFile file{slot_fingerprint(), sequence_.tokens(), {}};
    file.state = sequence_.copy_state();
    draft_.drop();  // the tokens that were decoded ahead are gone
    write_slot_file(path, file);
}

void Stream::restore_slot(const std::string & path) {
    cancelled_.throw_if_set();
    const SlotFile file = read_slot_file(
        path, slot_fingerprint(), {static_cast<uint64_t>(decoder_->n_ctx()), most_state_bytes(decoder_->context())});
    decoder_->model().check_tokens(file.tokens.data(), file.tokens.size());
    sequence_.restore_state(file.tokens, file.state);
    start_again();
}

void Stream::set_sampling(std::string_view json) {
    SamplingParams params = parse_sampling(sampling_, json);
    selector_.set_sampling(params, sequence_.tokens().data(), std::min(n_accepted_, sequence_.tokens().size()));
    sampling_ = std::move(params);
}

eliza_llm_stream_stats_t Stream::stats() const {
    eliza_llm_stream_stats_t stats = counts_;
    stats.select_us = counts_.select_ns / 1000;
    stats.n_past = static_cast<int32_t>(sequence_.tokens().size());
    stats.n_vocab = decoder_->model().n_vocab();
    stats.finish_reason = finish_reason_;
    stats.trie_active = choice_.is_active() ? 1 : 0;
    return stats;
}

}  // namespace eliza
