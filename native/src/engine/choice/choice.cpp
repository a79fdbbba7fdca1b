// The spans of a stream: how its choices are decoded, scored and ended. Declared in engine/stream/stream.h.

#include <algorithm>
#include <utility>

#include "engine/stream/stream.h"
#include "log.h"
#include "stopwatch.h"
#include "token_trie/rtkt.h"

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

void Stream::end_span_if_over() {
    const Constraint & constraint = span_->constraint();
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
    const SpanMode span_mode = parse_mode(mode);
    auto trie = TrieCache::shared().get(payload, decoder_->model().n_vocab());
    // A binary payload names no model.
    if (!options_.model_id.empty() && !is_rtkt(payload) && trie->model_id != options_.model_id) {
        throw invalid_argument("modelId: the payload is for \"" + trie->model_id + "\", the model is \"" +
                               options_.model_id + "\" (option model_id)");
    }
    begin_span(Span(TokenTrieConstraint(std::move(trie), options_.span_limit), span_mode, decoder_->model().n_vocab()));
}

void Stream::set_text_choices(std::string_view json, int mode) {
    const SpanMode span_mode = parse_mode(mode & ~ELIZA_TEXT_HEAL_PROMPT);
    if (span_mode.best_leaf) {
        throw invalid_argument(
            "mode 2 (best leaf) needs one way to spell each choice; text choices have many (use a token trie)");
    }
    const Model & model = decoder_->model();
    std::string healed;
    if ((mode & ELIZA_TEXT_HEAL_PROMPT) != 0) {
        if (selector_.has_grammar()) {
            throw invalid_argument(
                "the stream's grammar describes what is generated, so no token of the prompt can be spelled anew "
                "(flag 0x200)");
        }
        // Of choices that were set and not begun, that token is off already.
        const std::vector<llama_token> & tokens = sequence_.tokens();
        if (healing_is_pending()) {
            healed = model.vocabulary()->all().text(healed_->token);
        } else if (tokens.size() > 1) {
            healed = model.vocabulary()->all().text(tokens.back());
        }
    }
    auto choices = model.text_constraints().choices(json, healed);
    begin_span(Span(TextChoicesConstraint(std::move(choices), span_mode.stop_at_leaf ? model.end_tokens() : NoTokens(),
                                          options_.span_limit),
                    span_mode, model.n_vocab()));
    if (!healed.empty()) {
        healed_ = Healed{sequence_.tokens().back(), sequence_.tokens().size() - 1};
        text_to_skip_ = healed.size();
        sequence_.truncate(healed_->position);
    }
}

void Stream::begin_span(Span span) {
    take_back_healing();
    settle_known_text();
    span_.emplace(std::move(span));
    scores_.clear();
    leaf_.reset();
    drawn_.reset();
    draft_.reset();
    go_on();
    ++stats_.spans;
}

// The prompt's last token, taken off for a span that has not begun.
void Stream::take_back_healing() {
    if (healing_is_pending()) {
        sequence_.append(healed_->token);
    }
    healed_.reset();
    text_to_skip_ = 0;
}

void Stream::clear_token_trie() {
    if (span_) {
        span_->constraint().clear();
        end_span_if_over();
        take_back_healing();
    }
    if (finish_reason_ == ELIZA_FINISH_LEAF) {
        go_on();
    }
}

// The next token of the span; nothing where the span ends before it.
std::optional<llama_token> Stream::choose_in_span() {
    Constraint & constraint = span_->constraint();
    if (span_->mode.best_leaf) {
        return follow_best_leaf();
    }
    const TokenSpan allowed = constraint.allowed();
    const bool forced = allowed.size == 1 && !constraint.may_end();
    if (forced && options_.strategy != Strategy::token_by_token) {
        return take_without_pass(allowed[0]);
    }
    Turn turn(decoder_->turns(), cancelled_);
    if (forced) {
        logits(turn);
        ++stats_.tokens_forced;
        count_strategy_of_one_path();
        return allowed[0];
    }
    const auto row = span_logits(turn);
    const Stopwatch stopwatch(stats_.select_ns);
    const auto choice = selector().select_in_span(row, constraint, span_->mode.sampled);
    ++stats_.decisions;
    stats_.candidates_seen += constraint.may_end() ? decoder_->model().n_vocab() : static_cast<int64_t>(allowed.size);
    span_->logprob += choice.logprob;
    if (!choice.ended && !constraint.is_end_token(choice.token)) {
        return choice.token;
    }
    // A draw from the whole vocabulary is the next token's own draw; an argmax is only a verdict.
    if (choice.ended && span_->mode.sampled) {
        drawn_ = choice.token;
    }
    constraint.clear();
    end_span_if_over();
    return std::nullopt;
}

// Counts a token that is known without looking at logits.
llama_token Stream::take_without_pass(llama_token token) {
    ++stats_.tokens_forced;
    stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
    return token;
}

// Mode 2: once all leaves are scored, the best one's tokens follow.
std::optional<llama_token> Stream::follow_best_leaf() {
    const std::vector<double> & scores = leaf_scores();
    const auto best = std::max_element(scores.begin(), scores.end());
    const TokenTrie & trie = span_->trie();
    const std::vector<Token> way = trie.path(trie.leaf_node(static_cast<int32_t>(best - scores.begin())));
    const size_t n_walked = trie.path(span_->node()).size();
    span_->logprob = *best;
    if (n_walked < way.size()) {
        return take_without_pass(way[n_walked]);
    }
    span_->constraint().clear();
    end_span_if_over();
    return std::nullopt;
}

// The logits of the current decision, known already or decoded now, with those behind it where that
// is the faster way.
TokenSelector::SpanLogits Stream::span_logits(Turn & turn) {
    if (!span_->has_trie()) {
        count_strategy_of_one_path();
        return span_->gather(row(turn, span_->constraint().may_end(), span_->constraint().allowed()));
    }
    const TokenTrie::Node node = span_->node();
    if (span_->knows(node)) {
        stats_.forward_passes_saved += sequence_.has_undecoded() ? 1 : 0;
        return span_->logits_at(node);
    }
    if (sequence_.has_undecoded() && run_tree(turn, node)) {
        return span_->logits_at(node);
    }
    count_strategy_of_one_path();
    return span_->gather(row(turn, span_->needs_vocabulary(node), span_->constraint().allowed()));
}

void Stream::count_strategy_of_one_path() {
    const bool reference = options_.strategy == Strategy::token_by_token;
    stats_.strategies |= reference ? ELIZA_STRATEGY_TOKEN_BY_TOKEN : ELIZA_STRATEGY_SKIP_AHEAD;
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
    ++stats_.tree_passes;
    stats_.strategies |= ELIZA_STRATEGY_TREE;
}

const std::vector<double> & Stream::leaf_scores() {
    if (!scores_.empty()) {
        return scores_;
    }
    if (span_ && !span_->has_trie()) {
        throw invalid_argument("no scores: text choices can be spelled in many ways (use a token trie)");
    }
    if (!span_ || span_->node() != TokenTrie::root) {
        throw invalid_argument("no scores: ask for them after setting a trie and before its first token");
    }
    require_prompt();
    Turn turn(decoder_->turns(), cancelled_);
    learn_all_branches(turn);
    scores_ = span_->leaf_logprobs();
    return scores_;
}

void Stream::learn_all_branches(Turn & turn) {
    const TokenTrie & trie = span_->trie();
    if (trie.is_branch(TokenTrie::root) && !span_->knows(TokenTrie::root)) {
        span_->keep_row(TokenTrie::root,
                        row(turn, span_->needs_vocabulary(TokenTrie::root), trie.children(TokenTrie::root)));
    }
    if (options_.strategy != Strategy::token_by_token) {
        try {
            for (const TreeBatch & batch : plan_tree(trie, TokenTrie::root, decoder_->tree_limits())) {
                decode_batch(turn, batch, TokenTrie::root);
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

}  // namespace eliza
