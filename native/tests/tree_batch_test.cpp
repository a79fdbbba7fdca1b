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
    const auto batches = plan_tree(trie, TokenTrie::root, roomy);
    ASSERT_EQ(batches.size(), 1u);
    const auto & nodes = batches[0].nodes;
    ASSERT_EQ(nodes.size(), 3u);
    EXPECT_EQ(batches[0].n_lanes, 1);
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
    EXPECT_TRUE(plan_tree(TokenTrie({{"a", {1, 2}}, {"b", {3, 4}}}), TokenTrie::root, roomy).empty());
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
        const auto whole = plan_tree(trie, TokenTrie::root, roomy);
        ASSERT_EQ(whole.size(), undecided.tokens > 0 ? 1u : 0u);
        std::set<TokenTrie::Node> wanted;
        if (!whole.empty()) {
            ASSERT_EQ(whole[0].nodes.size(), undecided.tokens);
            ASSERT_EQ(static_cast<uint32_t>(whole[0].n_lanes), undecided.lanes);
            for (const auto & node : whole[0].nodes) {
                if (node.wants_logits) wanted.insert(node.node);
            }
            ASSERT_EQ(wanted.size(), undecided.branches);
        }
        // Split into small batches, the limits still hold, and every branch occurs once.
        const TreeLimits small{7, 3, 2};
        std::set<TokenTrie::Node> asked;
        for (const TreeBatch & batch : plan_tree(trie, TokenTrie::root, small)) {
            ASSERT_LE(static_cast<int32_t>(batch.nodes.size()), small.tokens);
            ASSERT_LE(batch.n_lanes, small.lanes);
            int32_t rows = 0;
            for (size_t i = 0; i < batch.nodes.size(); ++i) {
                const TreeBatch::Node & node = batch.nodes[i];
                ASSERT_LT(node.parent, static_cast<int32_t>(i));
                ASSERT_LT(node.lanes_begin, node.lanes_end);
                ASSERT_LE(node.lanes_end, batch.n_lanes);
                if (node.parent >= 0) {
                    const TreeBatch::Node & parent = batch.nodes[static_cast<size_t>(node.parent)];
                    ASSERT_EQ(node.depth, parent.depth + 1);
                    ASSERT_GE(node.lanes_begin, parent.lanes_begin);
                    ASSERT_LE(node.lanes_end, parent.lanes_end);
                }
                if (node.wants_logits) {
                    ++rows;
                    ASSERT_TRUE(asked.insert(node.node).second);
                }
            }
            ASSERT_LE(rows, small.rows);
        }
        ASSERT_EQ(asked, wanted);
    }
}

TEST(TreeBatch, RejectsAPathLongerThanABatch) {
    std::vector<Token> path(20, 1);
    auto other = path;
    other.back() = 2;
    EXPECT_TRUE(plan_tree(TokenTrie({{"a", path}, {"b", other}}), TokenTrie::root, {10, 10, 10}).empty());
}

}  // namespace
}  // namespace eliza
