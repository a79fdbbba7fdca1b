// A vocabulary as bytes: a trie of all tokens, flattened in depth-first order.
//
//     tokens     a = 0   b = 1   ax = 2   ayz = 3
//
//     node           0     1    2    3    4    5
//     byte           -     a    x    y    z    b
//     token          none  0    2    none 3    1
//     subtree_size   6     4    1    2    1    1      including the node
//     n_parents      0     1    1    2    3    1
//
// n_parents is the number of bytes to remove to get to the parent of the node that follows the subtree. After node 4
// (ayz) comes node 5 (b), whose parent is the root, three bytes up.
//
// One walk over the nodes finds all allowed tokens. It skips the subtree of every byte that is not allowed. A node has
// 8 bytes, and the walk reads nodes in order.
//
// The layout and the walk follow llguidance's toktrie, as described in its documentation. This folder does not
// depend on llama.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "byte_trie/token_set.h"

namespace eliza {

class ByteTrie {
public:
    // The longest text of a token in bytes, limited by the range of n_parents.
    static constexpr size_t max_token_bytes = 1023;

    class Node {
    public:
        Node(uint8_t byte, uint32_t token) : byte_and_token_(token << 8 | byte) {}

        uint8_t byte() const { return static_cast<uint8_t>(byte_and_token_); }
        uint32_t token() const { return byte_and_token_ >> 8; }  // n_vocab if no token ends here
        uint32_t subtree_size() const { return size_and_parents_ & max_nodes; }
        uint32_t n_parents() const { return size_and_parents_ >> size_bits; }

    private:
        friend class ByteTrie;
        static constexpr uint32_t size_bits = 22;
        static constexpr uint32_t max_nodes = (1u << size_bits) - 1;

        uint32_t byte_and_token_;
        uint32_t size_and_parents_ = 0;
    };
    static_assert(sizeof(Node) == 8, "eight nodes fit into a cache line");

    // texts[i] are the bytes of token i. An empty text marks a token without text, such as a control token. If several
    // tokens have the same bytes, all of them are found. Throws an Error if a token or the vocabulary is too large for
    // the layout.
    explicit ByteTrie(const std::vector<std::string_view> & texts);

    size_t n_vocab() const { return text_begin_.size() - 1; }
    const std::vector<Node> & nodes() const { return nodes_; }

    // Returns the bytes of a token, "" if it has no text.
    std::string_view text(Token token) const {
        const auto i = static_cast<size_t>(token);
        return std::string_view(texts_).substr(text_begin_[i], text_begin_[i + 1] - text_begin_[i]);
    }
    size_t longest_text() const { return longest_text_; }

    // Returns the child of a node for a byte, or 0 if there is none. 0 is the root, which is never a child.
    uint32_t child(uint32_t node, uint8_t byte) const;

    // Visits the other tokens with the same bytes as `token`, which must be the one stored in the trie.
    template <typename Visit>
    void for_each_twin(Token token, const Visit & visit) const {
        auto twin = std::lower_bound(twins_.begin(), twins_.end(), Twin{token, 0});
        for (; twin != twins_.end() && twin->in_trie == token; ++twin) {
            visit(twin->other);
        }
    }

    // Adds all tokens whose bytes can be pushed one after another. `stack` has the following methods, and is unchanged
    // afterwards:
    //   bool try_push_byte(uint8_t)   pushes the byte and returns true, or returns false and changes nothing
    //   void pop_bytes(size_t n)      removes the last n bytes
    template <typename Stack>
    void add_allowed(Stack & stack, TokenSet & allowed) const {
        const Node * node = nodes_.data() + 1;
        const Node * const end = nodes_.data() + nodes_.size();
        size_t to_pop = 0;
        while (node < end) {
            stack.pop_bytes(to_pop);
            if (stack.try_push_byte(node->byte())) {
                allowed.add(node->token());
                // After a leaf, remove all bytes down to the parent of the next node; after another node, none. This is
                // branchless.
                to_pop = node->subtree_size() == 1 ? node->n_parents() : 0;
                ++node;
            } else {
                to_pop = node->n_parents() - 1;
                node += node->subtree_size();
            }
        }
        stack.pop_bytes(to_pop);
        allowed.remove(n_vocab());
        for (const Twin & twin : twins_) {
            if (allowed.contains(static_cast<size_t>(twin.in_trie))) {
                allowed.add(static_cast<size_t>(twin.other));
            }
        }
    }

private:
    struct Twin {
        Token in_trie, other;
        bool operator<(const Twin & with) const {
            return in_trie != with.in_trie ? in_trie < with.in_trie : other < with.other;
        }
    };

    void add_nodes(const std::vector<Token> & by_text);
    void close_nodes(std::vector<uint32_t> & path, size_t depth);

    std::vector<Node> nodes_;
    std::array<uint32_t, 256> root_child_{};
    std::vector<Twin> twins_;
    std::string texts_;
    std::vector<uint32_t> text_begin_;
    size_t longest_text_ = 0;
};

}  // namespace eliza
