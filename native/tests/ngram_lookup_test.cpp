// Drafts that repeat what followed the same tokens before.

#include "engine/draft/ngram_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace eliza::test {
namespace {

using Tokens = std::vector<llama_token>;

Tokens repeat(const Tokens & tokens, size_t n) {
    Tokens text;
    while (n-- > 0) {
        text.insert(text.end(), tokens.begin(), tokens.end());
    }
    return text;
}

Tokens random_tokens(size_t n, llama_token most, unsigned seed) {
    std::mt19937 random(seed);
    Tokens text(n);
    std::generate(text.begin(), text.end(),
                  [&] { return static_cast<llama_token>(random() % static_cast<unsigned>(most)); });
    return text;
}

Tokens operator+(Tokens a, const Tokens & b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

struct Counts {
    size_t passes = 0, drafted = 0, right = 0;
};

// Simulates a model that writes the text from `begin` on, and counts the use of the drafts.
Counts write(NGramLookup & lookup, const Tokens & text, size_t begin, int32_t most) {
    Counts counts;
    for (size_t n = begin; n < text.size(); ++n) {
        const Tokens drafted = lookup.draft(Tokens(text.begin(), text.begin() + static_cast<ptrdiff_t>(n)), most);
        ++counts.passes;
        counts.drafted += drafted.size();
        for (size_t i = 0; i < drafted.size() && n < text.size() && drafted[i] == text[n]; ++i, ++n) {
            ++counts.right;
        }
    }
    return counts;
}

TEST(NGramLookup, DraftsNothingWithoutARepetition) {
    NGramLookup lookup;
    EXPECT_TRUE(lookup.draft({}, 8).empty());
    EXPECT_TRUE(lookup.draft({1}, 8).empty());
    EXPECT_TRUE(lookup.draft({1, 2, 3, 4, 5}, 8).empty());
    EXPECT_TRUE(lookup.draft({1, 2, 3, 4, 5, 1}, 8).empty());  // one matching token is not enough
}

TEST(NGramLookup, DraftsWhatFollowedTheSameTokens) {
    NGramLookup lookup;
    const Tokens list = {10, 11, 12, 13, 14, 15, 16, 17};
    EXPECT_EQ(lookup.draft(list + Tokens{1, 10, 11, 12, 13, 14, 15}, 2), (Tokens{16, 17}));
}

TEST(NGramLookup, DraftsAtMostTheRequestedNumber) {
    NGramLookup lookup;
    const Tokens text = repeat({1, 2, 3, 4, 5}, 20);
    EXPECT_EQ(lookup.draft(text, 1), (Tokens{1}));
    EXPECT_EQ(lookup.draft(text, 0), (Tokens{}));
    EXPECT_EQ(lookup.draft(text, -1), (Tokens{}));
}

TEST(NGramLookup, ContinuesARepetitionOfAnyPeriod) {
    for (const Tokens & period : {Tokens{7}, Tokens{7, 8}, Tokens{7, 8, 9}, Tokens{1, 2, 3, 4, 5, 6, 7}}) {
        NGramLookup lookup;
        const Tokens text = Tokens{100, 101} + repeat(period, 140 / period.size());
        EXPECT_LT(write(lookup, text, 3 * period.size() + 2, 20).passes, 30u);  // drafts grow while they are correct
        Tokens expected = repeat(period, 20);
        expected.resize(20);
        EXPECT_EQ(lookup.draft(text, 20), expected);
    }
}

TEST(NGramLookup, TakesTheLongestAndThenTheLatestMatch) {
    const Tokens longest = {1, 2, 3, 4, 5, 60}, shorter = {9, 4, 5, 70}, latest = {8, 2, 3, 4, 5, 80};
    EXPECT_EQ(NGramLookup().draft(longest + shorter + Tokens{1, 2, 3, 4, 5}, 1), (Tokens{60}));
    EXPECT_EQ(NGramLookup().draft(longest + latest + shorter + Tokens{7, 2, 3, 4, 5}, 1), (Tokens{80}));
}

TEST(NGramLookup, FindsTheFirstTokensOfAText) {
    EXPECT_EQ(NGramLookup().draft({1, 2, 3, 4, 5, 1, 2, 3}, 1), (Tokens{4}));
}

TEST(NGramLookup, DoesNotDependOnHowTheTextArrives) {
    const Tokens text = random_tokens(2000, 4, 1);
    NGramLookup grown;
    for (size_t n = 1; n <= text.size(); ++n) {
        const Tokens so_far(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
        // Only drafts of one token are compared. `grown` drafts less after its earlier drafts were wrong.
        const Tokens a = grown.draft(so_far, 1), b = NGramLookup().draft(so_far, 1);
        if (!a.empty() && !b.empty()) {
            ASSERT_EQ(a, b) << n;
        }
    }
}

TEST(NGramLookup, FollowsATextThatIsTruncatedAndContinued) {
    NGramLookup lookup;
    const Tokens head = {1, 2, 3, 4, 5, 6}, old_tail = {50, 51, 52, 53, 54}, new_tail = {50, 51, 52, 90, 91};
    EXPECT_EQ(lookup.draft(head + old_tail + Tokens{50, 51, 52}, 1), (Tokens{53}));
    EXPECT_EQ(lookup.draft(head + new_tail + Tokens{50, 51, 52}, 1), (Tokens{90}));  // 53 is gone
    EXPECT_EQ(lookup.draft(head + Tokens{1, 2, 3}, 1), (Tokens{4}));
    EXPECT_TRUE(lookup.draft({70, 71}, 1).empty());
    EXPECT_EQ(lookup.draft(head + old_tail + Tokens{50, 51, 52}, 1), (Tokens{53}));
}

TEST(NGramLookup, DraftsComeFromTheTextAfterAnEarlyChange) {
    // The lookup compares only the last tokens, so it does not notice that an earlier token has changed. The draft must
    // nevertheless come from the new text.
    NGramLookup lookup;
    const Tokens tail = random_tokens(200, 1000, 2);
    lookup.draft(Tokens{1, 2, 3, 4, 5} + tail, 4);
    EXPECT_TRUE(lookup.draft(Tokens{1, 2, 3, 9, 9} + tail + Tokens{3, 4}, 4).empty());
}

TEST(NGramLookup, CopyingAListUsesOnlyDrafts) {
    NGramLookup lookup;
    const Tokens list = random_tokens(500, 1000, 3);
    const Counts counts = write(lookup, list + Tokens{2000} + list, list.size() + 4, 8);
    EXPECT_GT(counts.right, 400u);
    EXPECT_LT(counts.drafted, counts.right + 10);
    EXPECT_LT(counts.passes, 75u);
}

TEST(NGramLookup, StopsDraftingWhileItIsWrong) {
    // Pairs of tokens recur, but never with the same successor.
    NGramLookup lookup;
    const Counts counts = write(lookup, random_tokens(4000, 20, 4), 10, 8);
    EXPECT_LT(counts.drafted, 200u);
    EXPECT_EQ(counts.passes + counts.right, 3990u);
}

TEST(NGramLookup, ResumesDraftingWhenTheTextRepeats) {
    NGramLookup lookup;
    const Tokens noise = random_tokens(3000, 20, 5), list = random_tokens(300, 1000, 6);
    write(lookup, noise, 10, 8);
    const Counts counts = write(lookup, noise + list + list, noise.size() + list.size() + 4, 8);
    EXPECT_GT(counts.right, 200u);
}

TEST(NGramLookup, AVeryRepetitiveTextIsNotSlow) {
    // Every token matches every other one. Without a limit this would take minutes.
    NGramLookup lookup;
    Tokens text;
    for (int i = 0; i < 20000; ++i) {
        text.push_back(7);
        lookup.draft(text, 4);
    }
    EXPECT_EQ(lookup.draft(text, 4), (Tokens{7, 7, 7, 7}));
}

}  // namespace
}  // namespace eliza::test
