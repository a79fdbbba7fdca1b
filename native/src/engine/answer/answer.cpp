// Structured answers: known text appended without sampling, values under a constraint. Declared in
// engine/stream.h.
//
// Known text is cut into tokens together with what is known around it, so a stretch that has been cut
// is kept as text until nothing can change its end: the next span may cut it anew. That costs no pass,
// since tokens are decoded when a decision needs logits.

#include <algorithm>
#include <utility>

#include "engine/stream/stream.h"
#include "sampling/grammar_constraint.h"
#include "stopwatch.h"

namespace eliza {
namespace {

// Known text that is longer than this is not cut anew from its beginning.
constexpr size_t long_text_bytes = 512;
constexpr size_t tail_tokens = 32;

bool inside_character(std::string_view text) {
    return !text.empty() && (static_cast<uint8_t>(text.front()) & 0xc0) == 0x80;
}

// A seed of its own for every span, so that two of them do not draw alike.
uint32_t seed_of_span(uint32_t seed, uint32_t n_spans_before) {
    if (seed == LLAMA_DEFAULT_SEED || n_spans_before == 0) {
        return seed;
    }
    const uint32_t mixed = seed ^ (n_spans_before * 0x9e3779b9u);
    return mixed != LLAMA_DEFAULT_SEED ? mixed : 0;
}

}  // namespace

// What comes now is no more part of the known text, which ends at token `end`.
void Stream::settle_known_text(size_t end) {
    for (; n_told_ < end; ++n_told_) {
        selector_.accept(sequence_.tokens()[n_told_]);
    }
    known_.reset();
}

void Stream::append_known_text(const KnownText & known) {
    const std::vector<llama_token> tokens = decoder_->model().tokenize_inside(known.text);
    require_room(known.begin + tokens.size());
    sequence_.truncate(known.begin);
    sequence_.append(tokens.data(), tokens.size());
    known_ = known;
    shorten_known_text();
}

void Stream::require_room(size_t n_tokens) const {
    if (n_tokens > static_cast<size_t>(decoder_->n_ctx())) {
        throw ContextFull(ELIZA_ERR_FFI_FAULT, "context full: the known text makes the answer " +
                                                   std::to_string(n_tokens) + " tokens long, the context is " +
                                                   std::to_string(decoder_->n_ctx()) + " (option n_ctx)");
    }
}

// Cutting all known text anew for every choice takes time that grows with its square. What lies far
// behind stays as it is, where the rest is cut the same without it.
void Stream::shorten_known_text() {
    const Model & model = decoder_->model();
    const std::vector<llama_token> & tokens = sequence_.tokens();
    if (known_->text.size() <= long_text_bytes || tokens.size() - known_->begin <= tail_tokens) {
        return;
    }
    const size_t begin = tokens.size() - tail_tokens;
    const std::vector<llama_token> tail(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end());
    std::string text;
    for (const llama_token token : tail) {
        text += model.vocabulary()->all().text(token);
    }
    if (!inside_character(text) && known_->text.size() >= text.size() &&
        known_->text.compare(known_->text.size() - text.size(), text.size(), text) == 0 &&
        model.tokenize_inside(text) == tail) {
        known_ = KnownText{begin, std::move(text)};
    }
}

Stream::KnownText Stream::known_text_before(const SpanSpec & spec) const {
    if (known_) {
        return {known_->begin, known_->text + spec.before};
    }
    const size_t n = sequence_.tokens().size();
    if (spec.heal && n > 1 && n == answer_begin_) {
        if (const std::string_view last = decoder_->model().vocabulary()->all().text(sequence_.tokens().back());
            !last.empty()) {
            return {n - 1, std::string(last) + spec.before};
        }
    }
    return {n, spec.before};
}

void Stream::tell_answer(FillResult & result) const {
    const std::vector<llama_token> & tokens = sequence_.tokens();
    result.answer.assign(tokens.begin() + static_cast<ptrdiff_t>(std::min(answer_begin_, tokens.size())), tokens.end());
    result.answer_bytes.clear();
    for (const llama_token token : result.answer) {
        result.answer_bytes.push_back(decoder_->model().vocabulary()->all().text(token).size());
    }
}

void Stream::fill(const SpanSpec & spec, FillResult & result) {
    throw_if_cancelled();
    require_prompt();
    if (span_) {
        throw invalid_argument("a span of choices is active: clear it before filling");
    }
    if (waiting_step_) {
        throw invalid_argument("a generated token waits to be taken before filling");
    }
    go_on();
    drawn_.reset();
    draft_.reset();
    const size_t n_before = sequence_.tokens().size();
    const int64_t n_generated = stats_.generated_tokens;
    const int64_t n_since_prefill = generated_since_prefill_;
    const std::optional<KnownText> known_before = known_;
    const KnownText known = known_text_before(spec);
    const std::vector<llama_token> tail(sequence_.tokens().begin() + static_cast<ptrdiff_t>(known.begin),
                                        sequence_.tokens().end());

    SamplingParams sampling = sampling_;
    sampling.temperature = spec.temperature;
    sampling.top_k = spec.top_k;
    sampling.top_p = spec.top_p;
    sampling.reasoning_budget = -1;
    sampling.seed = seed_of_span(sampling.seed, n_filled_++);
    fill_selector_.emplace(decoder_->model().vocab(), sampling, "", GrammarUse());
    for (size_t i = 0; i < known.begin; ++i) {
        fill_selector_->accept_prompt(sequence_.tokens()[i]);
    }
    const auto finish = [&] {
        fill_selector_.reset();
        span_.reset();
        drawn_.reset();
        const size_t n_now = sequence_.tokens().size();
        // Tokens that were cut anew count once.
        stats_.generated_tokens = n_generated + static_cast<int64_t>(n_now - std::min(n_before, n_now));
        generated_since_prefill_ = n_since_prefill;
    };
    try {
        switch (spec.kind) {
            case SpanSpec::Kind::literal: append_known_text({known.begin, known.text + spec.after}); break;
            case SpanSpec::Kind::choices: fill_choice(spec, known, result); break;
            case SpanSpec::Kind::value:
            case SpanSpec::Kind::grammar: fill_value(spec, known, result); break;
        }
    } catch (...) {
        if (result.text.empty()) {  // of the span nothing is there: all is as it was
            sequence_.truncate(known.begin);
            sequence_.append(tail.data(), tail.size());
            known_ = known_before;
        }
        finish();
        throw;
    }
    result.complete = true;
    finish();
}

void Stream::fill_choice(const SpanSpec & spec, const KnownText & known, FillResult & result) {
    const Model & model = decoder_->model();
    std::vector<Leaf> leaves;
    for (const std::string & choice : spec.choices) {
        leaves.push_back({choice, model.tokenize_inside(known.text + choice + spec.after)});
        require_room(known.begin + leaves.back().tokens.size());
    }
    auto trie = std::make_shared<const CachedTrie>(CachedTrie{"", TokenTrie(leaves)});
    for (size_t i = 0; i < leaves.size(); ++i) {
        const int32_t first = trie->trie.leaf(trie->trie.leaf_node(static_cast<int32_t>(i)));
        if (first != static_cast<int32_t>(i)) {
            throw invalid_argument("choices[" + std::to_string(i) + "] is the same as choices[" +
                                   std::to_string(first) + "]");
        }
    }
    SpanMode mode;
    mode.sampled = spec.temperature > 0.0f;
    sequence_.truncate(known.begin);
    known_.reset();
    leaf_.reset();
    scores_.clear();
    span_.emplace(TokenTrieConstraint(std::move(trie), INT32_MAX), mode, model.n_vocab());
    struct Part {
        llama_token token;
        int64_t forced, saved;
    };
    std::vector<Part> parts;
    const int64_t forced_before = stats_.tokens_forced;
    const int64_t saved_before = stats_.forward_passes_saved;
    while (span_) {
        const int64_t forced = stats_.tokens_forced;
        const int64_t saved = stats_.forward_passes_saved;
        const std::optional<llama_token> token = choose_in_span();
        if (!token) {
            break;
        }
        commit(*token);
        parts.push_back({*token, stats_.tokens_forced - forced, stats_.forward_passes_saved - saved});
    }
    if (!leaf_) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the span ended on none of its choices");
    }
    result.text = leaf_->name;
    result.logprob = leaf_->logprob;
    const auto chosen = std::find(spec.choices.begin(), spec.choices.end(), leaf_->name);
    result.choice = static_cast<int32_t>(chosen - spec.choices.begin());
    // The known text on both sides is no choice, and counts as little as where there is none.
    stats_.tokens_forced = forced_before;
    stats_.forward_passes_saved = saved_before;
    const size_t choice_begin = known.text.size();
    const size_t choice_end = choice_begin + result.text.size();
    size_t begin = 0;
    for (const Part & part : parts) {
        const size_t end = begin + model.vocabulary()->all().text(part.token).size();
        if (end > choice_begin && begin < choice_end) {
            ++result.n_tokens;
            stats_.tokens_forced += part.forced;
            stats_.forward_passes_saved += part.saved;
        }
        begin = end;
    }
    known_ = KnownText{known.begin, known.text + leaf_->name + spec.after};
    shorten_known_text();
}

// Takes tokens off the end until what they spell is whole characters. Returns their text.
std::string Stream::take_off_whole_characters(std::vector<llama_token> & tokens) const {
    const ByteTrie & vocabulary = decoder_->model().vocabulary()->all();
    std::string text;
    size_t n = tokens.size();
    do {
        if (n == 0 || vocabulary.text(tokens[n - 1]).empty()) {
            return "";
        }
        text.insert(0, vocabulary.text(tokens[--n]));
    } while (inside_character(text));
    tokens.resize(n);
    return text;
}

void Stream::fill_value(const SpanSpec & spec, const KnownText & known, FillResult & result) {
    const Model & model = decoder_->model();
    std::vector<llama_token> tokens = model.tokenize_inside(known.text);
    require_room(known.begin + tokens.size());
    // The last token of what is known may be the beginning of a longer one: the span spells it again.
    const Frame frame{take_off_whole_characters(tokens), spec.after};
    std::unique_ptr<TextConstraint> constraint;
    if (spec.kind == SpanSpec::Kind::grammar) {
        constraint = std::make_unique<GrammarConstraint>(model.vocab(), model.vocabulary(), model.end_tokens(),
                                                         spec.grammar, frame);
    } else {
        constraint = model.text_constraints().value(spec.value, frame)->begin();
    }
    sequence_.truncate(known.begin);
    sequence_.append(tokens.data(), tokens.size());
    for (const llama_token token : tokens) {
        fill_selector_->accept_prompt(token);
    }
    known_.reset();

    if (spec.logprobs) {
        result.logprob = 0.0;
    }
    while (!constraint->is_over()) {
        if (spec.max_tokens > 0 && result.n_tokens >= spec.max_tokens) {
            result.truncated = true;
            break;
        }
        const std::optional<llama_token> token = choose_in_text(*constraint, spec, result);
        if (!token) {
            break;
        }
        commit(*token);
        constraint->accept(*token);
        // A token of the known text alone, spelled again, is none of the value's.
        if (constraint->value().size() > result.text.size() || constraint->n_after() > 0) {
            ++result.n_tokens;
        }
        result.text = constraint->value();
    }
    const std::string end = result.truncated ? constraint->shortest_end() : "";
    append_known_text({sequence_.tokens().size(), end + spec.after.substr(constraint->n_after())});
    result.text += end;
}

// The next token of a value; nothing where the value ends before it.
std::optional<llama_token> Stream::choose_in_text(TextConstraint & constraint, const SpanSpec & spec,
                                                  FillResult & result) {
    throw_if_cancelled();
    if (constraint.before_value() && options_.strategy != Strategy::token_by_token) {
        if (const Token only = constraint.mask()->only; only >= 0) {
            return take_without_pass(only);
        }
    }
    Turn turn(decoder_->turns(), cancelled_);
    const float * row = logits(turn);
    const Stopwatch stopwatch(stats_.select_ns);
    const bool ends_freely = constraint.may_end() && spec.after.empty() && spec.kind != SpanSpec::Kind::grammar;
    const std::optional<llama_token> token = selector().select_in_text(row, constraint, ends_freely);
    ++stats_.decisions;
    stats_.candidates_seen += decoder_->model().n_vocab();
    if (result.logprob) {
        *result.logprob += selector().logprob_in_text(row, constraint, ends_freely, token);
    }
    if (!token || llama_vocab_is_eog(decoder_->model().vocab(), *token)) {
        return std::nullopt;
    }
    return token;
}

}  // namespace eliza
