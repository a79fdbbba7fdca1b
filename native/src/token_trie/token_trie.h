// Labels as token sequences: a flat, immutable trie.
//
// Nodes are numbered breadth first. The children of a node therefore have consecutive numbers, and their tokens are
// consecutive and ascending in one array:
//
//     leaves   A = [5, 7]   B = [5, 9]   C = [8]
//
//     node          0      1    2    3    4
//     token         -      5    8    7    9        the token on the edge to the node
//     first_child   1      3    -    -    -
//     n_children    2      2    0    0    0
//     leaf          -      -    C    A    B
//
// The allowed next tokens at node 1 are the two tokens from token[3] on, so a decision reads one short array. This
// folder does not depend on llama.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eliza {

using Token = int32_t;

struct Leaf {
    std::string name;
    std::vector<Token> tokens;
};

// A view of tokens in ascending order.
struct TokenSpan {
    const Token * data = nullptr;
    uint32_t size = 0;

    const Token * begin() const { return data; }
    const Token * end() const { return data + size; }
    Token operator[](uint32_t i) const { return data[i]; }
    bool empty() const { return size == 0; }
};

class TokenTrie {
public:
    using Node = uint32_t;
    static constexpr Node root = 0;
    static constexpr int32_t none = -1;

    // Leaves may share prefixes and be prefixes of each other. If several leaves have the same tokens, leaf() returns
    // the first of them. Throws an Error if there are no leaves, or a leaf has no tokens.
    explicit TokenTrie(const std::vector<Leaf> & leaves);

    // Returns the tokens that can follow, in ascending order; none if the node has no children.
    TokenSpan children(Node node) const { return {token_.data() + first_child_[node], n_children_[node]}; }

    // Returns the child that `token` leads to, or `none`.
    int32_t child(Node node, Token token) const;

    // Returns the index of the leaf that ends at this node, in the order of the constructor's argument, or `none`.
    int32_t leaf(Node node) const { return leaf_[node]; }

    const std::string & leaf_name(int32_t leaf) const { return names_[static_cast<size_t>(leaf)]; }

    // The node on which a leaf ends, and the tokens that lead to a node.
    Node leaf_node(int32_t leaf) const { return leaf_node_[static_cast<size_t>(leaf)]; }
    std::vector<Token> path(Node node) const;

    // True if there is a decision at this node: among several children, or between ending here and continuing.
    bool is_branch(Node node) const {
        return n_children_[node] + (leaf_[node] != none && n_children_[node] > 0 ? 1 : 0) >= 2;
    }

    // The cost of the decisions strictly below a node.
    struct Undecided {
        uint32_t tokens = 0;    // nodes that are branches or lead to a branch
        uint32_t branches = 0;  // branches
        uint32_t lanes = 0;     // branches with no branch below them; each needs its own sequence
        float passes = 0;       // average number of branches on the path to a leaf
    };
    const Undecided & undecided_below(Node node) const { return undecided_[node]; }

    // True for a branch and for a node that leads to a branch.
    bool is_undecided(Node node) const { return is_branch(node) || undecided_[node].tokens > 0; }

    // The token that leads into a node; none for the root.
    Token token(Node node) const { return token_[node]; }

    // The first of a node's children. The others have the numbers after it.
    Node first_child(Node node) const { return first_child_[node]; }

    size_t n_nodes() const { return token_.size(); }
    size_t n_leaves() const { return names_.size(); }
    size_t size_bytes() const;

private:
    void count_undecided();

    std::vector<Token> token_;
    std::vector<Node> parent_;
    std::vector<Node> first_child_;
    std::vector<uint32_t> n_children_;
    std::vector<int32_t> leaf_;
    std::vector<Undecided> undecided_;
    std::vector<Node> leaf_node_;
    std::vector<std::string> names_;
};

}  // namespace eliza
