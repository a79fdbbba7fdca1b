// Finds the most probable labels if any tokens may spell them.
//
// The probability of a label is then a sum over all its spellings, which are too many to read. The search reads the
// logits after the most probable prefixes of spellings first. What it has not read bounds every label's probability.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constraint/text_choices_constraint.h"
#include "engine/base/options.h"
#include "engine/choice/label_groups.h"
#include "engine/choice/tree_plan.h"
#include "engine/pass/sequence.h"

namespace eliza {

class TextSearch {
public:
    // The bounds of a probability that counts as exact differ by this at most.
    static constexpr double tolerance = 1e-3;
    // A model that finds many spellings equally probable needs too many passes for a proof.
    static constexpr int64_t default_passes = 100;
    // Less probable prefixes are only added up. A search can meet millions of them.
    static constexpr double least_logprob = -20.0;

    // The labels follow the sequence's tokens. A label that is the beginning of another one ends with one of
    // `end_tokens`; if there are none, with any token that does not continue a label.
    TextSearch(Sequence & sequence, const Options & options, std::shared_ptr<const TextChoices> labels,
               std::vector<Token> end_tokens);

    // Returns whether the rows read so far also serve a search for these labels.
    bool is_for(const TextChoices & labels) const;

    // Keeps what it reads, so that later calls need fewer passes. The sequence is unchanged afterwards. Throws an
    // Error.
    Ranking rank(const RankWish & wish);

private:
    struct Prefix {  // of a spelling
        std::vector<Token> tokens;
        TextSet::State state;
        double logprob;
    };
    struct View {
        std::vector<LabelGroups::Found> found;
        std::vector<LabelGroups::Open> open;
        std::vector<size_t> place;  // by unread prefix: its place in `open`, or `none`
    };
    static constexpr size_t none = SIZE_MAX;

    const TokenTrie & trie() const { return labels_->texts().trie(); }
    View look(const LabelGroups & groups) const;
    std::vector<size_t> next_reads(const View & view, const std::vector<bool> & decides) const;
    size_t count_in_one_pass(const std::vector<size_t> & reads) const;
    NumberedPaths paths_to(const std::vector<size_t> & reads) const;
    void read(std::vector<size_t> reads);
    bool may_end(TextSet::State state) const;
    bool needs_whole(TextSet::State state) const;
    void expand(const Prefix & prefix, const LogitsRow & row, std::vector<Prefix> & more,
                std::vector<LabelGroups::Found> & ended) const;

    Sequence & sequence_;
    const Options & options_;
    const std::shared_ptr<const TextChoices> labels_;
    const std::vector<Token> end_tokens_;
    const std::vector<llama_token> prompt_;
    std::vector<Prefix> unread_;
    std::unordered_map<TextSet::State, double> negligible_;  // the sums of prefixes that will never be read
    std::vector<LabelGroups::Found> ended_;                  // labels that are the beginning of other ones
};

}  // namespace eliza
