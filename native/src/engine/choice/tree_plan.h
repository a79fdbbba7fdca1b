// What is to be decoded behind a prompt, cut into trees of which each is decoded in one pass.
#pragma once

#include <utility>
#include <vector>

#include "engine/pass/pass_cost.h"
#include "engine/pass/tree_batch.h"
#include "token_trie/token_trie.h"

namespace eliza {

// The trees that give the logits of every branch strictly below `from`. Empty when there is none, and when a
// single path is longer than a tree may be.
std::vector<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits);

// Tokens in two pieces: those that many paths have in common, which live elsewhere, and its own.
class TokenPath {
public:
    TokenPath(TokenSpan common, std::vector<Token> own) : common_(common), own_(std::move(own)) {}

    size_t size() const { return common_.size + own_.size(); }
    bool empty() const { return size() == 0; }
    Token operator[](size_t i) const { return i < common_.size ? common_.data[i] : own_[i - common_.size]; }

    // How many tokens two of them begin with alike.
    static size_t alike(const TokenPath & a, const TokenPath & b);
    bool operator<(const TokenPath & other) const;

    // Without the first n.
    TokenPath behind(size_t n) const;

private:
    TokenSpan common_;
    std::vector<Token> own_;
};

// The trees that give the logits behind each path: as many whole paths in one as there is room for. The paths are
// ascending, none is empty and no two are equal; `node` of a place that wants logits is that of its path in the
// list. A path that is longer than a tree may be is in none.
std::vector<TreeBatch> plan_paths(const std::vector<TokenPath> & paths, TreeLimits limits);

// What plan_tree() comes to, known beforehand: whether it is one tree, ...
bool is_one_tree(const TokenTrie::Undecided & undecided, TreeLimits limits);

// ... and whether a pass over it, with the tokens that wait, costs less than one pass after another down the trie.
bool is_tree_cheaper(const TokenTrie::Undecided & undecided, size_t n_waiting, const PassCost & cost);

}  // namespace eliza
