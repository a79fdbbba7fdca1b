#include "engine/choice/choice.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/choice/label_search.h"
#include "engine/choice/path_reader.h"
#include "engine/choice/tree_plan.h"
#include "json_input.h"
#include "log.h"
#include "stopwatch.h"

namespace eliza {
namespace {

using End = Constraint::End;
using NoTokens = std::vector<Token>;

SpanMode parse_mode(int mode) {
    const int selection = mode & ~ELIZA_TRIE_STOP_AT_LEAF;
    if (selection < ELIZA_TRIE_ARGMAX || selection > ELIZA_TRIE_BEST_LEAF) {
        throw invalid_argument("trie mode " + std::to_string(mode) +
                               " is not 0 (argmax), 1 (sample) or 2 (best leaf), with or without 0x100 (stop at leaf)");
    }
    SpanMode span_mode;
    span_mode.sampled = selection == ELIZA_TRIE_SAMPLE;
    span_mode.best_leaf = selection == ELIZA_TRIE_BEST_LEAF;
    span_mode.stop_at_leaf = (mode & ELIZA_TRIE_STOP_AT_LEAF) != 0;
    return span_mode;
}

}  // namespace

void Choice::end_if_over() {
    const Constraint & constraint = span_->constraint();
    if (constraint.active()) {
        return;
    }
    if (const std::string * name = constraint.leaf_name()) {
        leaf_ = LeafResult{constraint.leaf(), *name, span_->logprob};
    }
    if (constraint.end() == End::departed) {
        ++counts_.trie_departures;
    }
    if (constraint.end() == End::span_limit) {
        ++counts_.span_limit_hits;
        log(LogLevel::warning, "eliza: the token trie was not cleared within " + std::to_string(options_.span_limit) +
                                   " tokens (option span_limit) and is deactivated");
    }
    span_.reset();
}

Span Choice::parse_token_trie(std::string_view payload, int mode) const {
    const SpanMode span_mode = parse_mode(mode);
    auto trie = trie_of_payload(payload, decoder_.model(), options_.model_id);
    return Span(TokenTrieConstraint(std::move(trie), options_.span_limit), span_mode, decoder_.model().n_vocab());
}

Span Choice::span_of(const PreparedChoices & choices, int mode) const {
    const SpanMode span_mode = parse_mode(mode);
    if (choices.longest() > static_cast<size_t>(decoder_.n_ctx())) {
        throw invalid_argument(at("choices", choices.longest_choice()) + " has " + std::to_string(choices.longest()) +
                               " tokens, the context holds " + std::to_string(decoder_.n_ctx()) + " (option n_ctx)");
    }
    return Span(TokenTrieConstraint(choices.trie()), span_mode, decoder_.model().n_vocab());
}

Span Choice::parse_text_choices(std::string_view json, int mode, bool has_grammar) const {
    const SpanMode span_mode = parse_mode(mode & ~ELIZA_TEXT_HEAL_PROMPT);
    if (span_mode.best_leaf) {
        throw invalid_argument(
            "mode 2 (best leaf) needs one way to spell each choice; text choices have many (use a token trie)");
    }
    const bool heals = (mode & ELIZA_TEXT_HEAL_PROMPT) != 0;
    if (heals && has_grammar) {
        throw invalid_argument(
            "flag 0x200 (heal the prompt) cannot be combined with a grammar, which describes only the generated text");
    }
    const Model & model = decoder_.model();
    const std::string healed = heals ? text_to_heal() : "";
    auto choices = model.text_constraints().choices(json, healed);
    Span span(TextChoicesConstraint(std::move(choices), span_mode.stop_at_leaf ? model.end_tokens() : NoTokens()),
              span_mode, model.n_vocab());
    span.healed_text = healed;
    return span;
}

// Returns the text of the prompt's last token, which an earlier span may already have removed.
std::string Choice::text_to_heal() const {
    const std::vector<llama_token> & tokens = sequence_.tokens();
    const ByteTrie & texts = decoder_.model().vocabulary()->all();
    if (healing_is_pending()) {
        return std::string(texts.text(healed_->token));
    }
    return tokens.size() > 1 ? std::string(texts.text(tokens.back())) : "";
}

void Choice::begin(Span span) {
    take_back_healing();
    span_.emplace(std::move(span));
    scores_.clear();
    best_.reset();
    leaf_.reset();
    drawn_.reset();
    if (!span_->healed_text.empty()) {
        healed_ = Healed{sequence_.tokens().back(), sequence_.tokens().size() - 1};
        text_to_skip_ = span_->healed_text.size();
        sequence_.truncate(healed_->position);
    }
}

void Choice::prompt_changed() {
    if (span_) {
        span_->forget_rows();  // they were computed after the shorter prompt
    }
    // A span that has begun keeps its best leaf, which mode 2 follows until the span ends, and its scores.
    if (!span_ || !span_->has_trie() || span_->node() == TokenTrie::root) {
        scores_.clear();
        best_.reset();
    }
    healed_.reset();
    drawn_.reset();
}

void Choice::forget() {
    span_.reset();
    drawn_.reset();
    leaf_.reset();
    scores_.clear();
    best_.reset();
    healed_.reset();
    text_to_skip_ = 0;
}

void Choice::accept(llama_token token) {
    healed_.reset();  // the span's first token replaces it
    if (span_) {
        span_->constraint().accept(token);
        end_if_over();
    }
}

size_t Choice::skip_text(size_t n_bytes) {
    const size_t n_skipped = std::min(text_to_skip_, n_bytes);
    text_to_skip_ = span_ ? text_to_skip_ - n_skipped : 0;
    return n_skipped;
}

// Restores the prompt's last token, if the span that removed it has no token yet.
void Choice::take_back_healing() {
    if (healing_is_pending()) {
        sequence_.append(healed_->token);
    }
    healed_.reset();
    text_to_skip_ = 0;
}

void Choice::clear() {
    if (span_) {
        span_->constraint().clear();
        end_if_over();
        take_back_healing();
    }
}

std::optional<llama_token> Choice::next(TokenSelector & selector) {
    Constraint & constraint = span_->constraint();
    const TokenSpan allowed = constraint.allowed();
    const bool forced = allowed.size == 1 && !constraint.may_end();
    if (span_->mode.best_leaf && (best_ || !forced)) {
        return follow_best_leaf();
    }
    if (forced) {
        if (options_.strategy == Strategy::token_by_token) {
            count_strategy_of_one_path();
        }
        sequence_.settle_forced(options_);
        return allowed[0];
    }
    const auto row = span_logits();
    const Stopwatch stopwatch(counts_.select_ns);
    const auto choice = selector.select_in_span(row, constraint, span_->mode.sampled);
    ++counts_.decisions;
    counts_.candidates_seen += constraint.may_end() ? decoder_.model().n_vocab() : static_cast<int64_t>(allowed.size);
    span_->logprob += choice.logprob;
    if (!choice.ended && !constraint.is_end_token(choice.token)) {
        return choice.token;
    }
    // If the token that ends the span was drawn from the whole vocabulary, it is also the next token: keep it. An
    // argmax need not be kept, because choosing again gives the same token.
    if (choice.ended && span_->mode.sampled) {
        drawn_ = choice.token;
    }
    constraint.clear();
    end_if_over();
    return std::nullopt;
}

// Finds the most probable leaf. The tokens so far, if any, are common to all leaves.
void Choice::find_best_leaf() {
    require_trie();
    const TokenTrie::Node from = span_->node();
    const bool knows_all = scores_.empty() && sequence_.has_undecoded() && run_tree(from);
    const std::vector<double> scores = knows_all ? span_->leaf_logprobs() : scores_;
    if (scores.empty()) {
        LabelSearch search(sequence_, options_, {{}, span_->cached_trie(), LabelRule::legal, from});
        const Ranking::Entry found = search.rank({}).best.front();
        best_ = BestLeaf{found.label, found.logprob};
    } else {
        const auto best = std::max_element(scores.begin(), scores.end());
        best_ = BestLeaf{static_cast<int32_t>(best - scores.begin()), *best};
    }
}

// Mode 2: finds the most probable leaf, then returns its tokens.
std::optional<llama_token> Choice::follow_best_leaf() {
    if (!best_) {
        find_best_leaf();
    }
    const TokenTrie & trie = span_->trie();
    const std::vector<Token> way = trie.path(trie.leaf_node(best_->leaf));
    const size_t n_walked = trie.path(span_->node()).size();
    span_->logprob = best_->logprob;
    if (n_walked < way.size()) {
        sequence_.count_forced();
        return way[n_walked];
    }
    span_->constraint().clear();
    end_if_over();
    return std::nullopt;
}

void Choice::require_trie() const {
    if (span_ && !span_->has_trie()) {
        throw invalid_argument("no scores: text choices can be spelled in many ways (use a token trie)");
    }
}

// Throws Error unless the span is a token trie of which no token has been chosen.
void Choice::require_beginning() const {
    require_trie();
    if (!span_ || span_->node() != TokenTrie::root) {
        throw invalid_argument("no scores: ask for them after setting a trie and before its first token");
    }
}

// Returns the logits of the current decision. If they are not known, decodes either this decision alone or also all
// later decisions, whichever is faster.
TokenSelector::SpanLogits Choice::span_logits() {
    if (!span_->has_trie()) {
        count_strategy_of_one_path();
        return span_->gather(row(span_->constraint().may_end()));
    }
    const TokenTrie::Node node = span_->node();
    if (span_->knows(node)) {
        counts_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return span_->logits_at(node);
    }
    if (sequence_.has_undecoded() && run_tree(node)) {
        return span_->logits_at(node);
    }
    count_strategy_of_one_path();
    return span_->gather(row(span_->needs_vocabulary(node)));
}

LogitsRow Choice::row(bool whole) { return whole ? LogitsRow(sequence_.logits()) : sequence_.row_of_few(options_); }

void Choice::count_strategy_of_one_path() {
    const bool reference = options_.strategy == Strategy::token_by_token;
    counts_.strategies |= reference ? ELIZA_STRATEGY_TOKEN_BY_TOKEN : ELIZA_STRATEGY_SKIP_AHEAD;
}

// Decodes all undecoded tokens and all decisions that may follow in one pass. Returns false if it did not.
bool Choice::run_tree(TokenTrie::Node from) {
    const TokenTrie::Undecided & undecided = span_->trie().undecided_below(from);
    const bool wanted = options_.strategy == Strategy::tree ||
                        (options_.strategy == Strategy::automatic && is_tree_worth_it(undecided));
    if (!wanted || undecided.tokens == 0) {
        return false;
    }
    const std::optional<TreeBatch> batch = plan_tree(span_->trie(), from, decoder_.tree_limits());
    if (!batch) {
        return false;  // too large for one pass; after this decision the rest is smaller
    }
    try {
        decode_batch(*batch, from);
    } catch (const ContextFull &) {
        return false;  // there may still be room for one path
    }
    return true;
}

bool Choice::is_tree_worth_it(const TokenTrie::Undecided & undecided) {
    if (!is_one_tree(undecided, decoder_.tree_limits())) {
        return false;
    }
    return is_tree_cheaper(undecided, sequence_.n_waiting(), sequence_.pass_cost());
}

void Choice::decode_batch(const TreeBatch & batch, TokenTrie::Node from) {
    const auto needs_vocabulary = [&](const TreeBatch::Node & node) {
        return node.wants_logits && span_->needs_vocabulary(node.node);
    };
    const bool whole = !options_.restricts_head() || span_->needs_vocabulary(from) ||
                       std::any_of(batch.nodes.begin(), batch.nodes.end(), needs_vocabulary);
    const auto keep_row = [&](int32_t place, const LogitsRow & row) {
        span_->keep_row(place < 0 ? from : batch.nodes[static_cast<size_t>(place)].node, row);
    };
    const auto preferred = [&] { return span_->knows(from) ? span_->preferred_place(batch, from) : -1; };
    sequence_.decode_tree(batch, whole ? Rows::whole : Rows::some, sequence_.has_undecoded(), keep_row, preferred);
    ++counts_.tree_passes;
    counts_.strategies |= ELIZA_STRATEGY_TREE;
}

const std::vector<double> & Choice::leaf_scores() {
    if (!scores_.empty()) {
        return scores_;
    }
    require_beginning();
    learn_all_branches();
    scores_ = span_->leaf_logprobs();
    return scores_;
}

void Choice::learn_all_branches() {
    const TokenTrie & trie = span_->trie();
    std::vector<std::pair<TokenPath, size_t>> branches;
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        if (trie.is_branch(node) && !span_->knows(node)) {
            branches.emplace_back(TokenPath({}, trie.path(node)), node);
        }
    }
    const auto needs_whole = [&](size_t node) {
        return !options_.restricts_head() || span_->needs_vocabulary(static_cast<TokenTrie::Node>(node));
    };
    PathReader(sequence_, options_)
        .read(NumberedPaths(std::move(branches)), needs_whole,
              [&](size_t node, const LogitsRow & row) { span_->keep_row(static_cast<TokenTrie::Node>(node), row); });
}

}  // namespace eliza
