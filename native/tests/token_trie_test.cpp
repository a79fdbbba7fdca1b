#include "token_trie/token_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "error.h"

namespace eliza {
namespace {

std::vector<Token> tokens_of(TokenSpan span) { return {span.begin(), span.end()}; }

TEST(TokenTrie, LaysOutChildrenAsOneAscendingRun) {
    const TokenTrie trie({{"A", {5, 7}}, {"B", {5, 9}}, {"C", {8}}});
    EXPECT_EQ(trie.n_nodes(), 5u);
    EXPECT_EQ(tokens_of(trie.children(TokenTrie::root)), (std::vector<Token>{5, 8}));
    const auto five = static_cast<TokenTrie::Node>(trie.child(TokenTrie::root, 5));
    EXPECT_EQ(tokens_of(trie.children(five)), (std::vector<Token>{7, 9}));
    EXPECT_EQ(trie.leaf(five), TokenTrie::none);
    EXPECT_EQ(trie.leaf_name(trie.leaf(static_cast<TokenTrie::Node>(trie.child(five, 9)))), "B");
    EXPECT_EQ(trie.child(five, 8), TokenTrie::none);
}

TEST(TokenTrie, MarksALeafThatOthersContinue) {
    const TokenTrie trie({{"long", {1, 2, 3}}, {"short", {1, 2}}});
    auto node = static_cast<TokenTrie::Node>(trie.child(TokenTrie::root, 1));
    node = static_cast<TokenTrie::Node>(trie.child(node, 2));
    EXPECT_EQ(trie.leaf_name(trie.leaf(node)), "short");
    EXPECT_EQ(tokens_of(trie.children(node)), (std::vector<Token>{3}));
}

TEST(TokenTrie, NamesANodeAfterTheFirstOfEqualLeaves) {
    const TokenTrie trie({{"first", {4}}, {"second", {4}}});
    EXPECT_EQ(trie.n_leaves(), 2u);
    EXPECT_EQ(trie.n_nodes(), 2u);
    EXPECT_EQ(trie.leaf_name(trie.leaf(1)), "first");
}

TEST(TokenTrie, RejectsNoLeavesAndEmptyLeaves) {
    EXPECT_THROW(TokenTrie({}), Error);
    EXPECT_THROW(TokenTrie({{"A", {1}}, {"empty", {}}}), Error);
}

TEST(TokenTrie, AgreesWithBruteForceOnRandomLeaves) {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        std::vector<Leaf> leaves(1 + random() % 30);
        for (size_t i = 0; i < leaves.size(); ++i) {
            leaves[i].name = std::to_string(i);
            leaves[i].tokens.resize(1 + random() % 5);
            for (Token & token : leaves[i].tokens) token = static_cast<Token>(random() % 4);
        }
        const TokenTrie trie(leaves);
        for (const Leaf & leaf : leaves) {
            TokenTrie::Node node = TokenTrie::root;
            for (size_t depth = 0; depth <= leaf.tokens.size(); ++depth) {
                std::set<Token> next;
                int32_t ends_here = TokenTrie::none;
                for (size_t i = 0; i < leaves.size(); ++i) {
                    const std::vector<Token> & other = leaves[i].tokens;
                    if (other.size() < depth ||
                        !std::equal(other.begin(), other.begin() + static_cast<long>(depth), leaf.tokens.begin()))
                        continue;
                    if (other.size() > depth) next.insert(other[depth]);
                    if (other.size() == depth && ends_here == TokenTrie::none) ends_here = static_cast<int32_t>(i);
                }
                ASSERT_EQ(tokens_of(trie.children(node)), std::vector<Token>(next.begin(), next.end()));
                ASSERT_EQ(trie.leaf(node), ends_here);
                if (depth < leaf.tokens.size()) {
                    node = static_cast<TokenTrie::Node>(trie.child(node, leaf.tokens[depth]));
                }
            }
        }
    }
}

}  // namespace
}  // namespace eliza
