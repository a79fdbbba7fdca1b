// Plans which tokens after a prompt are decoded as trees. Each tree is decoded in one forward pass.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/pass/pass_cost.h"
#include "engine/pass/tree_batch.h"
#include "token_trie/token_trie.h"

namespace eliza {

// Returns the tree that gives the logits of every branch strictly below `from`. Returns nothing if there is no such
// branch, or if one tree is not enough.
std::optional<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits);

// A path of tokens in two pieces: a common piece that many paths share and that is stored elsewhere, and its own piece.
class TokenPath {
public:
    TokenPath(TokenSpan common, std::vector<Token> own) : common_(common), own_(std::move(own)) {}

    size_t size() const { return common_.size + own_.size(); }
    bool empty() const { return size() == 0; }
    Token operator[](size_t i) const { return i < common_.size ? common_.data[i] : own_[i - common_.size]; }

    // Returns the number of tokens in the common prefix of two paths.
    static size_t alike(const TokenPath & a, const TokenPath & b);
    bool operator<(const TokenPath & other) const;

    // Returns the path without its first n tokens.
    TokenPath behind(size_t n) const;

private:
    TokenSpan common_;
    std::vector<Token> own_;
};

// Returns trees that give the logits after each path. Each tree contains as many whole paths as fit. The paths must be
// sorted, distinct and not empty. If a node wants logits, its `node` is the index of its path in `paths`. Paths longer
// than the limit for a tree are left out.
std::vector<TreeBatch> plan_paths(const std::vector<TokenPath> & paths, TreeLimits limits);

// Paths in ascending order, and a number that belongs to each.
struct NumberedPaths {
    explicit NumberedPaths(std::vector<std::pair<TokenPath, size_t>> unsorted);

    std::vector<TokenPath> paths;
    std::vector<size_t> numbers;
};

// Returns whether one tree, or none, gives the logits after all these paths. The first may be empty.
bool fit_one_tree(const std::vector<TokenPath> & paths, TreeLimits limits);

// Returns whether plan_tree() would return a tree, without planning it.
bool is_one_tree(const TokenTrie::Undecided & undecided, TreeLimits limits);

// Returns whether a single pass with a tree costs less than one pass for each decision on the way down the trie. The
// single pass decodes the waiting tokens and the whole tree, so is_one_tree() must be true.
bool is_tree_cheaper(const TokenTrie::Undecided & undecided, size_t n_waiting, const PassCost & cost);

}  // namespace eliza
