// Choices as token sequences: a flat, immutable trie.
//
// Nodes are numbered breadth first, so the children of a node are neighbours and their tokens are
// one ascending run of an array:
//
//     leaves   A = [5, 7]   B = [5, 9]   C = [8]
//
//     node          0      1    2    3    4
//     token         -      5    8    7    9        what leads into the node
//     first_child   1      3    -    -    -
//     n_children    2      2    0    0    0
//     leaf          -      -    C    A    B
//
// The legal next tokens at node 1 are &token[3], two of them: reading a choice's logits is walking
// one short array. Nothing here knows llama.cpp.
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

// A borrowed run of tokens, ascending.
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

    // Leaves may share prefixes, be prefixes of each other and repeat: of leaves with the same
    // tokens, the first one names the node. Throws Error if there is no leaf or one has no tokens.
    explicit TokenTrie(const std::vector<Leaf> & leaves);

    // The tokens that can follow, ascending. Empty at a leaf that nothing continues.
    TokenSpan children(Node node) const { return {token_.data() + first_child_[node], n_children_[node]}; }

    // The child that `token` leads to, or `none`.
    int32_t child(Node node, Token token) const;

    // The index of the leaf that ends here, in payload order, or `none`.
    int32_t leaf(Node node) const { return leaf_[node]; }

    const std::string & leaf_name(int32_t leaf) const { return names_[static_cast<size_t>(leaf)]; }

    // The node on which a leaf ends, and the tokens that lead to a node.
    Node leaf_node(int32_t leaf) const { return leaf_node_[static_cast<size_t>(leaf)]; }
    std::vector<Token> path(Node node) const;

    // True where there is something to decide: two or more children, or going on and ending.
    bool is_branch(Node node) const {
        return n_children_[node] + (leaf_[node] != none && n_children_[node] > 0 ? 1 : 0) >= 2;
    }

    // What the decisions strictly below a node would take.
    struct Undecided {
        uint32_t tokens = 0;    // nodes that are branches or lead to one
        uint32_t branches = 0;  // of those, branches
        uint32_t lanes = 0;     // of those, the deepest: one sequence each
        float passes = 0;       // branches on the way to a leaf, on average over the leaves
    };
    const Undecided & undecided_below(Node node) const { return undecided_[node]; }

    // True for a branch and for what leads to one.
    bool is_undecided(Node node) const { return is_branch(node) || undecided_[node].tokens > 0; }

    // The token that leads into a node; none for the root.
    Token token(Node node) const { return token_[node]; }

    // The first of a node's children, which are neighbours.
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
