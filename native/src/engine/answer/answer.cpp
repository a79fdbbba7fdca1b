#include "engine/answer/answer.h"

#include <algorithm>
#include <utility>

#include "grammar/grammar_constraint.h"
#include "json_input.h"
#include "stopwatch.h"

namespace eliza {
namespace {

// A longer fixed text is not tokenized again from its beginning.
constexpr size_t long_text_bytes = 512;
constexpr size_t tail_tokens = 32;

bool inside_character(std::string_view text) {
    return !text.empty() && (static_cast<uint8_t>(text.front()) & 0xc0) == 0x80;
}

// Removes the last character if it is incomplete.
std::string_view whole_characters(std::string_view text) {
    size_t begin = text.size();
    while (begin > 0 && inside_character(text.substr(begin - 1))) {
        --begin;
    }
    if (begin == 0) {
        return "";
    }
    const auto lead = static_cast<uint8_t>(text[begin - 1]);
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return text.size() - (begin - 1) < length ? text.substr(0, begin - 1) : text;
}

}  // namespace

void Answer::begin_after_prompt(bool from_start) {
    begin_ = sequence_.tokens().size();
    fixed_.reset();
    n_filled_ = from_start ? 0 : n_filled_;
}

void Answer::append_fixed_text(const FixedText & fixed) {
    const std::vector<llama_token> tokens = decoder_.model().tokenize_inside(fixed.text);
    require_room(fixed.begin + tokens.size());
    sequence_.truncate(fixed.begin);
    sequence_.append(tokens.data(), tokens.size());
    fixed_ = fixed;
    shorten_fixed_text();
}

void Answer::require_room(size_t n_tokens) const {
    if (n_tokens > static_cast<size_t>(decoder_.n_ctx())) {
        throw ContextFull("the fixed text makes the answer " + std::to_string(n_tokens) +
                          " tokens long, the context is " + std::to_string(decoder_.n_ctx()) + " (option n_ctx)");
    }
}

// Tokenizing all fixed text again for every span would take time that grows with the square of its length. So only the
// end of a long text is tokenized again, if the end has the same tokens when it is tokenized alone. The beginning keeps
// its tokens.
void Answer::shorten_fixed_text() {
    const Model & model = decoder_.model();
    const std::vector<llama_token> & tokens = sequence_.tokens();
    if (fixed_->text.size() <= long_text_bytes || tokens.size() - fixed_->begin <= tail_tokens) {
        return;
    }
    const size_t begin = tokens.size() - tail_tokens;
    const std::vector<llama_token> tail(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end());
    std::string text;
    for (const llama_token token : tail) {
        text += model.piece(token);
    }
    if (!inside_character(text) && fixed_->text.size() >= text.size() &&
        fixed_->text.compare(fixed_->text.size() - text.size(), text.size(), text) == 0 &&
        model.tokenize_inside(text) == tail) {
        fixed_ = FixedText{begin, std::move(text)};
    }
}

Answer::FixedText Answer::fixed_text_before(const SpanSpec & spec) const {
    if (spec.take_back >= 0) {
        return text_after_taking_back(static_cast<size_t>(spec.take_back), spec.before);
    }
    if (fixed_) {
        return {fixed_->begin, fixed_->text + spec.before};
    }
    const size_t n = sequence_.tokens().size();
    if (spec.heal && n > 1 && n == begin_) {
        if (const std::string last = decoder_.model().piece(sequence_.tokens().back()); !last.empty()) {
            return {n - 1, last + spec.before};
        }
    }
    return {n, spec.before};
}

// The rest of the last token is tokenized again together with the text that follows.
Answer::FixedText Answer::text_after_taking_back(size_t n_bytes, const std::string & before) const {
    const size_t n = sequence_.tokens().size();
    if (n_bytes == 0) {
        return {n, before};
    }
    const std::string last = n > begin_ ? decoder_.model().piece(sequence_.tokens().back()) : "";
    if (n_bytes > last.size()) {
        throw invalid_argument("take_back: expected at most the " + std::to_string(last.size()) +
                               " bytes of the answer's last token, found " + std::to_string(n_bytes));
    }
    return {n - 1, last.substr(0, last.size() - n_bytes) + before};
}

void Answer::tell(FillResult & result) const {
    const std::vector<llama_token> & tokens = sequence_.tokens();
    result.answer.assign(tokens.begin() + static_cast<ptrdiff_t>(std::min(begin_, tokens.size())), tokens.end());
    result.answer_bytes.clear();
    for (const llama_token token : result.answer) {
        result.answer_bytes.push_back(decoder_.model().piece(token).size());
    }
}

void Answer::fill(const SpanSpec & spec, SamplingParams sampling, FillResult & result) {
    const size_t n_before = sequence_.tokens().size();
    const int64_t n_generated = counts_.generated_tokens;
    const std::optional<FixedText> fixed_before = fixed_;
    const FixedText fixed = fixed_text_before(spec);
    const std::vector<llama_token> tail(sequence_.tokens().begin() + static_cast<ptrdiff_t>(fixed.begin),
                                        sequence_.tokens().end());

    sampling.temperature = spec.temperature;
    sampling.top_k = spec.top_k;
    sampling.top_p = spec.top_p;
    sampling.reasoning_budget = -1;
    sampling.seed = nth_seed(sampling.seed, n_filled_++);  // each span has its own draws
    TokenSelector selector(decoder_.model().vocab(), sampling);
    for (size_t i = 0; i < fixed.begin; ++i) {
        selector.accept_prompt(sequence_.tokens()[i]);
    }
    const auto finish = [&] {
        choice_.drop();
        const size_t n_now = sequence_.tokens().size();
        // A token that replaces another token is not counted again.
        counts_.generated_tokens = n_generated + static_cast<int64_t>(n_now - std::min(n_before, n_now));
    };
    try {
        switch (spec.kind) {
            case SpanSpec::Kind::literal: append_fixed_text({fixed.begin, fixed.text + spec.after}); break;
            case SpanSpec::Kind::choices: fill_choice(spec, fixed, selector, result); break;
            case SpanSpec::Kind::value:
            case SpanSpec::Kind::grammar: fill_value(spec, fixed, selector, result); break;
        }
    } catch (...) {
        if (result.text.empty()) {  // nothing of the span was written: restore the state before it
            sequence_.truncate(fixed.begin);
            sequence_.append(tail.data(), tail.size());
            fixed_ = fixed_before;
        }
        finish();
        throw;
    }
    result.complete = true;
    finish();
}

void Answer::commit(llama_token token, TokenSelector & selector) {
    sequence_.append(token);
    selector.accept(token);
    choice_.accept(token);
}

// Returns the labels of a span, each with the fixed text around it. Requests with the same schema have the same labels
// at the same places, and tokenizing these takes up to a tenth of the time of a request to a small model.
std::shared_ptr<const CachedTrie> Answer::trie_of_labels(const SpanSpec & spec, const std::string & before) const {
    std::string key;
    const auto add = [&key](const std::string & text) { key += std::to_string(text.size()) + ':' + text; };
    add(before);
    add(spec.after);
    std::for_each(spec.choices.begin(), spec.choices.end(), add);
    const Model & model = decoder_.model();
    return model.label_tries().get(key, [&] {
        std::vector<Leaf> leaves;
        for (const std::string & choice : spec.choices) {
            sequence_.cancelled().throw_if_set();
            leaves.push_back({choice, model.tokenize_inside(before + choice + spec.after)});
        }
        auto trie = std::make_shared<const CachedTrie>(CachedTrie{"", TokenTrie(leaves)});
        for (int32_t i = 0; i < static_cast<int32_t>(leaves.size()); ++i) {
            const int32_t first = trie->trie.leaf(trie->trie.leaf_node(i));
            if (first != i) {
                throw invalid_argument(at("choices", static_cast<size_t>(i)) + " is the same as " +
                                       at("choices", static_cast<size_t>(first)));
            }
        }
        return trie;
    });
}

void Answer::fill_choice(const SpanSpec & spec, const FixedText & fixed, TokenSelector & selector,
                         FillResult & result) {
    const Model & model = decoder_.model();
    std::shared_ptr<const CachedTrie> trie = trie_of_labels(spec, fixed.text);
    for (int32_t i = 0; i < static_cast<int32_t>(trie->trie.n_leaves()); ++i) {
        require_room(fixed.begin + trie->trie.path(trie->trie.leaf_node(i)).size());
    }
    SpanMode mode;
    mode.sampled = spec.temperature > 0.0f;
    mode.best_leaf = spec.best && !mode.sampled;
    sequence_.truncate(fixed.begin);
    fixed_.reset();
    choice_.begin(Span(TokenTrieConstraint(std::move(trie)), mode, model.n_vocab()));
    struct Part {
        llama_token token;
        int64_t forced, saved;
    };
    std::vector<Part> parts;
    const int64_t forced_before = counts_.tokens_forced;
    const int64_t saved_before = counts_.forward_passes_saved;
    while (choice_.is_active()) {
        const int64_t forced = counts_.tokens_forced;
        const int64_t saved = counts_.forward_passes_saved;
        const std::optional<llama_token> token = choice_.next(selector);
        if (!token) {
            break;
        }
        commit(*token, selector);
        parts.push_back({*token, counts_.tokens_forced - forced, counts_.forward_passes_saved - saved});
    }
    const auto & leaf = choice_.leaf();
    if (!leaf) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the span ended on none of its choices");
    }
    result.text = leaf->name;
    result.logprob = leaf->logprob;
    const auto chosen = std::find(spec.choices.begin(), spec.choices.end(), leaf->name);
    result.choice = static_cast<int32_t>(chosen - spec.choices.begin());
    // The labels include the fixed text on both sides. Count only the tokens of the label itself.
    counts_.tokens_forced = forced_before;
    counts_.forward_passes_saved = saved_before;
    const size_t choice_begin = fixed.text.size();
    const size_t choice_end = choice_begin + result.text.size();
    size_t begin = 0;
    for (const Part & part : parts) {
        const size_t end = begin + model.piece(part.token).size();
        if (end > choice_begin && begin < choice_end) {
            ++result.n_tokens;
            counts_.tokens_forced += part.forced;
            counts_.forward_passes_saved += part.saved;
        }
        begin = end;
    }
    fixed_ = FixedText{fixed.begin, fixed.text + leaf->name + spec.after};
    shorten_fixed_text();
}

// Removes tokens from the end until the removed text consists of whole characters. Returns this text.
std::string Answer::take_off_whole_characters(std::vector<llama_token> & tokens) const {
    std::string text;
    size_t n = tokens.size();
    do {
        const std::string last = n == 0 ? "" : decoder_.model().piece(tokens[n - 1]);
        if (last.empty()) {
            return "";
        }
        text.insert(0, last);
        --n;
    } while (inside_character(text));
    tokens.resize(n);
    return text;
}

void Answer::fill_value(const SpanSpec & spec, const FixedText & fixed, TokenSelector & selector, FillResult & result) {
    const Model & model = decoder_.model();
    std::vector<llama_token> tokens = model.tokenize_inside(fixed.text);
    require_room(fixed.begin + tokens.size());
    // The model may choose a longer token that contains the end of the fixed text and the beginning of the value. So
    // the last tokens of the fixed text are removed, and the span generates their text again.
    const Frame frame{take_off_whole_characters(tokens), spec.after};
    std::unique_ptr<TextConstraint> constraint;
    if (spec.kind == SpanSpec::Kind::grammar) {
        constraint = std::make_unique<GrammarConstraint>(model.grammar_values(), spec.grammar,
                                                         options_.grammar_limits(sequence_.cancelled()), frame);
    } else {
        constraint = model.text_constraints().value(spec.value, frame)->begin();
    }
    sequence_.truncate(fixed.begin);
    sequence_.append(tokens.data(), tokens.size());
    for (const llama_token token : tokens) {
        selector.accept_prompt(token);
    }
    fixed_.reset();
    write_value(spec, *constraint, selector, result);
}

void Answer::write_value(const SpanSpec & spec, TextConstraint & constraint, TokenSelector & selector,
                         FillResult & result) {
    if (spec.logprobs) {
        result.logprob = 0.0;
    }
    ForcedText end;
    size_t n_unspellable = 0;  // bytes of forced text that the tokenizer cannot express: the model chooses their tokens
    while (!constraint.is_over()) {
        if (spec.max_tokens > 0 && result.n_tokens >= spec.max_tokens) {
            result.truncated = true;
            end.text = constraint.shortest_end();
            break;
        }
        if (n_unspellable == 0) {
            const ForcedText forced = constraint.forced();
            if (forced.ends_value) {
                end = forced;
                break;
            }
            const std::optional<size_t> n_appended = append_forced(forced.text, constraint, selector, result);
            if (n_appended && *n_appended > 0) {
                continue;
            }
            n_unspellable = n_appended ? 0 : forced.text.size();
        }
        const std::optional<llama_token> token = choose_in_text(constraint, spec, selector, result);
        if (!token) {
            break;
        }
        take(*token, constraint, selector, result);
        n_unspellable -= std::min(n_unspellable, decoder_.model().piece(*token).size());
    }
    const size_t n_tokens = sequence_.tokens().size();
    append_fixed_text({n_tokens, end.text + spec.after.substr(constraint.n_after())});
    result.text += end.text.substr(end.n_before);
    const std::vector<llama_token> & tokens = sequence_.tokens();
    for (size_t i = n_tokens, n_bytes = 0; end.ends_value && n_bytes < end.text.size() && i < tokens.size(); ++i) {
        ++result.n_tokens;
        n_bytes += decoder_.model().piece(tokens[i]).size();
    }
}

// Appends the tokens that the tokenizer makes of forced text. Only the reference strategy runs passes for them. The
// last token is left to the model, which may choose a longer one.
std::optional<size_t> Answer::append_forced(const std::string & forced, TextConstraint & constraint,
                                            TokenSelector & selector, FillResult & result) {
    std::optional<std::vector<llama_token>> tokens = decoder_.model().tokens_inside(whole_characters(forced));
    if (!tokens) {
        return std::nullopt;
    }
    if (take_off_whole_characters(*tokens).empty()) {
        return 0;
    }
    require_room(sequence_.tokens().size() + tokens->size());
    for (const llama_token token : *tokens) {
        sequence_.settle_forced(options_);
        take(token, constraint, selector, result);
    }
    return tokens->size();
}

void Answer::take(llama_token token, TextConstraint & constraint, TokenSelector & selector, FillResult & result) {
    commit(token, selector);
    constraint.accept(token);
    // A token that only repeats fixed text does not count as a token of the value.
    if (constraint.value().size() > result.text.size() || constraint.n_after() > 0) {
        ++result.n_tokens;
    }
    result.text = constraint.value();
}

// Chooses from a few tokens. Only their logits are computed.
llama_token Answer::choose_of_few(TokenSpan legal, TokenSelector & selector) {
    std::vector<float> logits(legal.size);
    sequence_.row_of_few(options_).gather(legal, logits.data());
    const Stopwatch stopwatch(counts_.select_ns);
    ++counts_.decisions;
    counts_.candidates_seen += static_cast<int64_t>(legal.size);
    return selector.select_of_legal(logits.data(), legal);
}

// Returns the next token of a value, or nothing if the value ends before it.
std::optional<llama_token> Answer::choose_in_text(TextConstraint & constraint, const SpanSpec & spec,
                                                  TokenSelector & selector, FillResult & result) {
    sequence_.cancelled().throw_if_set();
    if (constraint.before_value()) {
        if (const Token only = constraint.mask()->only; only >= 0) {
            sequence_.settle_forced(options_);
            return only;
        }
    }
    const bool ends_freely = constraint.may_end() && spec.after.empty() && spec.kind != SpanSpec::Kind::grammar;
    if (constraint.is_narrow() && !ends_freely && !result.logprob) {
        const std::vector<Token> legal = constraint.mask()->tokens.tokens();
        if (!legal.empty() && legal.size() <= TokenSelector::few_tokens) {
            return choose_of_few({legal.data(), static_cast<uint32_t>(legal.size())}, selector);
        }
    }
    const float * row = sequence_.logits();
    const Stopwatch stopwatch(counts_.select_ns);
    const std::optional<llama_token> token = selector.select_in_text(row, constraint, ends_freely);
    ++counts_.decisions;
    counts_.candidates_seen += decoder_.model().n_vocab();
    if (result.logprob) {
        *result.logprob += selector.logprob_in_text(row, constraint, ends_freely, token);
    }
    if (!token || llama_vocab_is_eog(decoder_.model().vocab(), *token)) {
        return std::nullopt;
    }
    return token;
}

}  // namespace eliza
