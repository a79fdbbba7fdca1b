#include "engine/choice/tree_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace eliza {
namespace {

constexpr TreeLimits roomy{1000, 1000, 1000};

TEST(TreeBatch, ContainsTheBranchesAndThePathsToThem) {
    // root -1- (2, 3 -4- (5, 6)), 7 -8: below the root, only "1", "3" and "4" have decisions.
    const TokenTrie trie({{"a", {1, 2}}, {"b", {1, 3, 4, 5}}, {"c", {1, 3, 4, 6}}, {"d", {7, 8}}});
    const auto batch = plan_tree(trie, TokenTrie::root, roomy);
    ASSERT_TRUE(batch.has_value());
    const auto & nodes = batch->nodes;
    ASSERT_EQ(nodes.size(), 3u);
    EXPECT_EQ(batch->n_lanes, 1);
    EXPECT_EQ(nodes[0].token, 1);
    EXPECT_TRUE(nodes[0].wants_logits);
    EXPECT_EQ(nodes[1].token, 3);
    EXPECT_FALSE(nodes[1].wants_logits);
    EXPECT_EQ(nodes[2].token, 4);
    EXPECT_EQ(nodes[2].parent, 1);
    EXPECT_EQ(nodes[2].depth, 2);
    EXPECT_TRUE(nodes[2].wants_logits);
}

TEST(TreeBatch, IsEmptyWithoutLaterDecisions) {
    EXPECT_FALSE(plan_tree(TokenTrie({{"a", {1, 2}}, {"b", {3, 4}}}), TokenTrie::root, roomy));
}

TEST(TreeBatch, CountsOnRandomTriesAgreeWithThePlan) {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<Leaf> leaves(1 + random() % 40);
        for (Leaf & leaf : leaves) {
            leaf.tokens.resize(1 + random() % 6);
            for (Token & token : leaf.tokens) token = static_cast<Token>(random() % 3);
        }
        const TokenTrie trie(leaves);
        const auto & undecided = trie.undecided_below(TokenTrie::root);
        const auto batch = plan_tree(trie, TokenTrie::root, roomy);
        ASSERT_EQ(batch.has_value(), undecided.tokens > 0);
        if (!batch) continue;
        ASSERT_EQ(batch->nodes.size(), undecided.tokens);
        ASSERT_EQ(static_cast<uint32_t>(batch->n_lanes), undecided.lanes);
        std::set<TokenTrie::Node> wanted;
        for (size_t i = 0; i < batch->nodes.size(); ++i) {
            const TreeBatch::Node & node = batch->nodes[i];
            ASSERT_LT(node.parent, static_cast<int32_t>(i));
            ASSERT_LT(node.lanes_begin, node.lanes_end);
            ASSERT_LE(node.lanes_end, batch->n_lanes);
            if (node.parent >= 0) {
                const TreeBatch::Node & parent = batch->nodes[static_cast<size_t>(node.parent)];
                ASSERT_EQ(node.depth, parent.depth + 1);
                ASSERT_GE(node.lanes_begin, parent.lanes_begin);
                ASSERT_LE(node.lanes_end, parent.lanes_end);
            }
            if (node.wants_logits) {
                ASSERT_TRUE(wanted.insert(node.node).second);
            }
        }
        ASSERT_EQ(wanted.size(), undecided.branches);
        const auto tokens = static_cast<int32_t>(undecided.tokens), rows = static_cast<int32_t>(undecided.branches),
                   lanes = static_cast<int32_t>(undecided.lanes);
        EXPECT_TRUE(plan_tree(trie, TokenTrie::root, {tokens, rows, lanes}));
        EXPECT_FALSE(plan_tree(trie, TokenTrie::root, {tokens - 1, rows, lanes}));
        EXPECT_FALSE(plan_tree(trie, TokenTrie::root, {tokens, rows - 1, lanes}));
        EXPECT_FALSE(plan_tree(trie, TokenTrie::root, {tokens, rows, lanes - 1}));
    }
}

}  // namespace
}  // namespace eliza
