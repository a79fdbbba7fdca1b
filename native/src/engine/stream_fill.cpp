// Structured answers: known text appended without sampling, values under a constraint. Declared in
// engine/stream.h.
//
// Known text is cut into tokens together with what is known around it, so a stretch that has been cut
// is kept as text until nothing can change its end: the next span may cut it anew. That costs no pass,
// since tokens are decoded when a decision needs logits.

#include <algorithm>
#include <utility>

#include "engine/stopwatch.h"
#include "engine/stream.h"
#include "sampling/grammar_constraint.h"

namespace eliza {

// What comes now is no more part of the known text.
void Stream::settle_known_text() {
    for (; n_told_ < sequence_.tokens().size(); ++n_told_) {
        selector_.accept(sequence_.tokens()[n_told_]);
    }
    known_.reset();
}

void Stream::append_known_text(const KnownText & known) {
    const std::vector<llama_token> tokens = decoder_->model().tokenize_inside(known.text);
    sequence_.truncate(known.begin);
    sequence_.append(tokens.data(), tokens.size());
    known_ = known;
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
    const size_t n_before = sequence_.tokens().size();
    const int64_t n_generated = stats_.generated_tokens;
    const KnownText known = known_text_before(spec);

    SamplingParams sampling = sampling_;
    sampling.temperature = spec.temperature;
    sampling.top_k = spec.top_k;
    sampling.top_p = spec.top_p;
    fill_selector_.emplace(decoder_->model().vocab(), sampling, "", GrammarUse());
    for (const llama_token token : sequence_.tokens()) {
        fill_selector_->accept_prompt(token);
    }
    const auto finish = [&] {
        fill_selector_.reset();
        span_.reset();
        const size_t n_now = sequence_.tokens().size();
        // Tokens that were cut anew count once.
        stats_.generated_tokens = n_generated + static_cast<int64_t>(n_now - std::min(n_before, n_now));
        result.answer.assign(sequence_.tokens().begin() + static_cast<ptrdiff_t>(std::min(answer_begin_, n_now)),
                             sequence_.tokens().end());
    };
    try {
        switch (spec.kind) {
            case SpanSpec::Kind::literal: append_known_text({known.begin, known.text + spec.after}); break;
            case SpanSpec::Kind::choices: fill_choice(spec, known, result); break;
            case SpanSpec::Kind::value:
            case SpanSpec::Kind::grammar: fill_value(spec, known, result); break;
        }
    } catch (...) {
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
    }
    auto trie = std::make_shared<const CachedTrie>(CachedTrie{"", TokenTrie(leaves)});
    if (trie->trie.n_nodes() > 0) {
        for (size_t i = 0; i < leaves.size(); ++i) {
            const int32_t first = trie->trie.leaf(trie->trie.leaf_node(static_cast<int32_t>(i)));
            if (first != static_cast<int32_t>(i)) {
                throw invalid_argument("choices[" + std::to_string(i) + "] is the same as choices[" +
                                       std::to_string(first) + "]");
            }
        }
    }
    SpanMode mode;
    mode.sampled = spec.temperature > 0.0f;
    sequence_.truncate(known.begin);
    known_.reset();
    leaf_.reset();
    scores_.clear();
    span_.emplace(TokenTrieConstraint(std::move(trie), INT32_MAX), mode, model.n_vocab());
    while (span_) {
        const std::optional<llama_token> token = choose_in_span();
        if (!token) {
            break;
        }
        commit(*token);
        ++result.n_tokens;
    }
    drawn_.reset();
    if (!leaf_) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the span ended on none of its choices");
    }
    result.text = leaf_->name;
    result.logprob = leaf_->logprob;
    const auto chosen = std::find(spec.choices.begin(), spec.choices.end(), leaf_->name);
    result.choice = static_cast<int32_t>(chosen - spec.choices.begin());
    known_ = KnownText{known.begin, known.text + leaf_->name + spec.after};
}

void Stream::fill_value(const SpanSpec & spec, const KnownText & known, FillResult & result) {
    const Model & model = decoder_->model();
    std::vector<llama_token> tokens = model.tokenize_inside(known.text);
    // The last token of what is known may be the beginning of a longer one: the span spells it again.
    Frame frame{"", spec.after};
    if (!tokens.empty()) {
        frame.before = model.vocabulary()->all().text(tokens.back());
        tokens.pop_back();
    }
    std::unique_ptr<TextConstraint> constraint;
    if (spec.kind == SpanSpec::Kind::grammar) {
        constraint = std::make_unique<GrammarConstraint>(model.vocab(), model.vocabulary(), model.end_tokens(),
                                                         spec.grammar, frame);
    } else {
        constraint = model.text_constraints().value(spec.value, frame)->begin();
    }
    sequence_.truncate(known.begin);
    sequence_.append(tokens.data(), tokens.size());
    known_.reset();

    if (spec.logprobs) {
        result.logprob = 0.0;
    }
    while (!constraint->is_over()) {
        if (spec.max_tokens > 0 && result.n_tokens >= spec.max_tokens && !constraint->before_value()) {
            result.truncated = true;
            break;
        }
        const std::optional<llama_token> token = choose_in_text(*constraint, spec, result);
        if (!token) {
            break;
        }
        commit(*token);
        constraint->accept(*token);
        result.text = constraint->value();
        ++result.n_tokens;
    }
    const std::string end = result.truncated ? constraint->shortest_end() : "";
    result.text += end;
    append_known_text({sequence_.tokens().size(), end + spec.after.substr(constraint->n_after())});
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
    if (!token || llama_vocab_is_eog(decoder_->model().vocab(), *token)) {
        return std::nullopt;
    }
    if (result.logprob) {
        *result.logprob += TokenSelector::logprob_among(row, *constraint.mask(), *token);
    }
    return token;
}

}  // namespace eliza
