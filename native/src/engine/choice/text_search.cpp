#include "engine/choice/text_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include "engine/choice/path_reader.h"
#include "sampling/token_selector.h"

namespace eliza {

TextSearch::TextSearch(Sequence & sequence, const Options & options, std::shared_ptr<const TextChoices> labels,
                       std::vector<Token> end_tokens)
    : sequence_(sequence),
      options_(options),
      labels_(std::move(labels)),
      end_tokens_(std::move(end_tokens)),
      prompt_(sequence.tokens()),
      unread_{{{}, labels_->texts().start(), 0.0}} {}

bool TextSearch::is_for(const TextChoices & labels) const {
    return labels_.get() == &labels && sequence_.tokens() == prompt_;
}

Ranking TextSearch::rank(const RankWish & wish) {
    std::vector<int32_t> of_label = wish.groups;
    if (of_label.empty()) {
        of_label.resize(trie().n_leaves());
        std::iota(of_label.begin(), of_label.end(), 0);
    }
    LabelGroups groups(trie(), of_label);
    const int64_t before = sequence_.counts().forward_passes;
    const auto n_passes = [&] { return sequence_.counts().forward_passes - before; };
    int64_t n_reads = 0;
    LabelGroups::Ranked ranked;
    for (;;) {
        sequence_.cancelled().throw_if_set();
        const View view = look(groups);
        ranked = groups.rank(view.found, view.open, wish.n, tolerance);
        if (ranked.ranking.proven) {
            break;
        }
        const bool is_first = unread_.size() == 1 && unread_.front().tokens.empty();
        const bool needs_pass = !is_first || sequence_.has_undecoded();
        if (needs_pass && n_passes() >= wish.max_passes.value_or(default_passes)) {
            break;
        }
        const std::vector<size_t> reads = next_reads(view, ranked.decides);
        if (reads.empty()) {
            break;  // only negligible prefixes are left
        }
        try {
            read(reads);
        } catch (const ContextFull &) {
            break;  // the bounds so far are valid
        }
        n_reads += static_cast<int64_t>(reads.size());
    }
    ranked.ranking.passes = n_passes();
    ranked.ranking.reads = n_reads;
    return ranked.ranking;
}

// Divides the unread prefixes into those that lead to one group and those that are open. Prefixes with the same text
// lead to the same labels, so they are one open prefix.
TextSearch::View TextSearch::look(const LabelGroups & groups) const {
    View view;
    view.place.assign(unread_.size(), none);
    for (const LabelGroups::Found & label : ended_) {
        view.found.push_back({groups.of_label(label.label), label.logprob});
    }
    std::unordered_map<TextSet::State, size_t> places;
    const auto add = [&](TextSet::State state, double logprob) {
        const int32_t group = groups.below(state);
        if (group != LabelGroups::mixed) {
            view.found.push_back({group, logprob});
            return none;
        }
        const auto [known, is_new] = places.emplace(state, view.open.size());
        if (is_new) {
            view.open.push_back({state, logprob});
        } else {
            LabelGroups::Open & open = view.open[known->second];
            open.logprob = log_add(open.logprob, logprob);
        }
        return known->second;
    };
    for (size_t i = 0; i < unread_.size(); ++i) {
        view.place[i] = add(unread_[i].state, unread_[i].logprob);
    }
    for (const auto & [state, logprob] : negligible_) {
        add(state, logprob);
    }
    return view;
}

// Returns the unread prefixes for the next pass: the most probable prefix that can change the ranking, and as many
// other such prefixes as fit into the pass, down to a hundredth of its probability.
std::vector<size_t> TextSearch::next_reads(const View & view, const std::vector<bool> & decides) const {
    std::vector<size_t> reads;
    for (size_t i = 0; i < unread_.size(); ++i) {
        if (view.place[i] != none && decides[view.place[i]]) {
            reads.push_back(i);
        }
    }
    std::stable_sort(reads.begin(), reads.end(),
                     [&](size_t a, size_t b) { return unread_[a].logprob > unread_[b].logprob; });
    if (reads.empty()) {
        return reads;
    }
    const double least = unread_[reads.front()].logprob - std::log(100.0);
    const auto end = std::find_if(reads.begin() + 1, reads.end(), [&](size_t i) { return unread_[i].logprob < least; });
    reads.erase(end, reads.end());
    reads.resize(count_in_one_pass(reads));
    return reads;
}

// Returns how many of the prefixes, from the first one on, one pass reads.
size_t TextSearch::count_in_one_pass(const std::vector<size_t> & reads) const {
    const TreeLimits limits = sequence_.decoder().tree_limits();
    if (options_.strategy == Strategy::token_by_token || limits.lanes == 0) {
        return 1;
    }
    size_t n = std::min(reads.size(), static_cast<size_t>(limits.lanes));
    const auto is_one_pass = [&] {
        return fit_one_tree(paths_to({reads.begin(), reads.begin() + static_cast<std::ptrdiff_t>(n)}).paths, limits);
    };
    while (n > 1 && !is_one_pass()) {
        n /= 2;
    }
    return n;
}

// Returns the tokens after the prompt that lead to each prefix.
NumberedPaths TextSearch::paths_to(const std::vector<size_t> & reads) const {
    std::vector<std::pair<TokenPath, size_t>> paths;
    for (const size_t prefix : reads) {
        paths.emplace_back(TokenPath({}, unread_[prefix].tokens), prefix);
    }
    return NumberedPaths(std::move(paths));
}

void TextSearch::read(std::vector<size_t> reads) {
    std::vector<Prefix> more;
    std::vector<LabelGroups::Found> ended;
    PathReader(sequence_, options_)
        .read(
            paths_to(reads), [&](size_t prefix) { return needs_whole(unread_[prefix].state); },
            [&](size_t prefix, const LogitsRow & row) { expand(unread_[prefix], row, more, ended); });
    std::sort(reads.begin(), reads.end(), std::greater<>());
    for (const size_t prefix : reads) {
        unread_[prefix] = std::move(unread_.back());
        unread_.pop_back();
    }
    for (Prefix & prefix : more) {
        if (prefix.logprob > least_logprob) {
            unread_.push_back(std::move(prefix));
        } else {
            const auto [known, is_new] = negligible_.emplace(prefix.state, prefix.logprob);
            known->second = is_new ? prefix.logprob : log_add(known->second, prefix.logprob);
        }
    }
    ended_.insert(ended_.end(), ended.begin(), ended.end());
}

bool TextSearch::may_end(TextSet::State state) const { return labels_->texts().may_end(state); }

bool TextSearch::needs_whole(TextSet::State state) const {
    return !options_.restricts_head() || (may_end(state) && end_tokens_.empty());
}

// Adds the prefixes that are one token longer, and the label that ends here.
void TextSearch::expand(const Prefix & prefix, const LogitsRow & row, std::vector<Prefix> & more,
                        std::vector<LabelGroups::Found> & ended) const {
    std::vector<Token> tokens = labels_->allowed(prefix.state);
    const size_t n_longer = tokens.size();
    if (may_end(prefix.state)) {
        tokens.insert(tokens.end(), end_tokens_.begin(), end_tokens_.end());
    }
    std::vector<float> logits(tokens.size());
    row.gather({tokens.data(), static_cast<uint32_t>(tokens.size())}, logits.data());
    double log_total = log_sum_exp(logits.data(), logits.size());
    if (may_end(prefix.state)) {
        double ending;
        if (end_tokens_.empty()) {
            const double longer = log_total;
            log_total = log_sum_exp(row.whole(), static_cast<size_t>(sequence_.decoder().model().n_vocab()));
            ending = log_of_rest(longer - log_total);
        } else {
            ending = log_sum_exp(logits.data() + n_longer, end_tokens_.size()) - log_total;
        }
        ended.push_back({trie().leaf(prefix.state), prefix.logprob + ending});
    }
    finite_total(log_total);
    for (size_t i = 0; i < n_longer; ++i) {
        Prefix longer{prefix.tokens, prefix.state, prefix.logprob + logits[i] - log_total};
        longer.tokens.push_back(tokens[i]);
        for (const char byte : labels_->vocabulary().text(tokens[i])) {
            labels_->texts().step(longer.state, static_cast<uint8_t>(byte));
        }
        more.push_back(std::move(longer));
    }
}

}  // namespace eliza
