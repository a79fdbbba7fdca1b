#include "constraint/token_trie_constraint.h"

#include <gtest/gtest.h>

namespace eliza {
namespace {

using End = TokenTrieConstraint::End;

TokenTrieConstraint constraint_of(const std::vector<Leaf> & leaves, int32_t span_limit = 500) {
    return TokenTrieConstraint(std::make_shared<const CachedTrie>(CachedTrie{"m", TokenTrie(leaves)}), span_limit);
}

TEST(TokenTrieConstraint, IsActiveAtTheRootAndEndsOnALeaf) {
    auto span = constraint_of({{"THINK", {100, 101}}, {"EXECUTE", {200}}});
    EXPECT_TRUE(span.active());
    EXPECT_EQ(span.leaf_name(), nullptr);
    span.accept(100);
    ASSERT_EQ(span.allowed().size, 1u);
    EXPECT_EQ(span.allowed()[0], 101);
    span.accept(101);
    EXPECT_FALSE(span.active());
    EXPECT_EQ(span.end(), End::leaf);
    EXPECT_EQ(*span.leaf_name(), "THINK");
    span.accept(200);  // after its end, the span ignores tokens
    EXPECT_EQ(*span.leaf_name(), "THINK");
}

TEST(TokenTrieConstraint, DepartsOnATokenOutsideTheTrie) {
    auto span = constraint_of({{"A", {1, 2}}});
    span.accept(9);
    EXPECT_EQ(span.end(), End::departed);
    EXPECT_EQ(span.leaf_name(), nullptr);
}

TEST(TokenTrieConstraint, EndsOnAShortLeafWhenAnotherTokenFollows) {
    auto span = constraint_of({{"short", {1}}, {"long", {1, 2}}});
    EXPECT_FALSE(span.may_end());
    span.accept(1);
    EXPECT_TRUE(span.active());
    EXPECT_TRUE(span.may_end());
    auto other = span;
    span.accept(2);
    EXPECT_EQ(*span.leaf_name(), "long");
    other.accept(7);
    EXPECT_EQ(*other.leaf_name(), "short");
}

TEST(TokenTrieConstraint, ClearEndsItOnTheCurrentLeaf) {
    auto span = constraint_of({{"short", {1}}, {"long", {1, 2, 3}}});
    auto at_root = span;
    at_root.clear();
    EXPECT_EQ(at_root.end(), End::cleared);
    span.accept(1);
    span.clear();
    EXPECT_EQ(*span.leaf_name(), "short");
}

TEST(TokenTrieConstraint, EndsAtTheSpanLimitOrOnALeaf) {
    const std::vector<Token> long_path(600, 3);
    auto span = constraint_of({{"long", long_path}});
    for (int i = 0; i < 499; ++i) span.accept(3);
    EXPECT_TRUE(span.active());
    span.accept(3);
    EXPECT_EQ(span.end(), End::span_limit);

    // On a leaf that is the beginning of another one, it ends on that leaf.
    auto on_leaf = constraint_of({{"short", {1, 2}}, {"long", {1, 2, 3}}}, 2);
    on_leaf.accept(1);
    on_leaf.accept(2);
    EXPECT_EQ(*on_leaf.leaf_name(), "short");

    auto exact = constraint_of({{"A", {1, 2}}}, 2);
    exact.accept(1);
    exact.accept(2);
    EXPECT_EQ(exact.end(), End::leaf);
}

TEST(TokenTrieConstraint, ResetReturnsToTheRoot) {
    auto span = constraint_of({{"A", {1, 2}}});
    span.accept(1);
    span.accept(2);
    span.reset();
    EXPECT_TRUE(span.active());
    EXPECT_EQ(span.allowed()[0], 1);
}

}  // namespace
}  // namespace eliza
