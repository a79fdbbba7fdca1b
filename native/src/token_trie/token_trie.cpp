#include "token_trie/token_trie.h"

#include <algorithm>
#include <numeric>

#include "error.h"

namespace eliza {

TokenTrie::TokenTrie(const std::vector<Leaf> & leaves) {
    if (leaves.empty()) {
        throw invalid_argument("the payload has no leaves");
    }
    names_.reserve(leaves.size());
    for (const Leaf & leaf : leaves) {
        if (leaf.tokens.empty()) {
            throw invalid_argument("leaf \"" + leaf.name + "\" has no tokens");
        }
        names_.push_back(leaf.name);
    }

    // In the order of their tokens, the leaves below a node are a contiguous range. The sort is stable, so that leaves
    // with the same tokens keep their order.
    std::vector<uint32_t> order(leaves.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return leaves[a].tokens < leaves[b].tokens; });

    // The leaves at and below a node. Their first `depth` tokens are equal.
    struct Range {
        uint32_t begin, end, depth;
    };
    std::vector<Range> ranges{{0, static_cast<uint32_t>(order.size()), 0}};
    token_.push_back(none);
    parent_.push_back(root);
    leaf_node_.resize(leaves.size());

    for (size_t node = 0; node < ranges.size(); ++node) {
        auto [begin, end, depth] = ranges[node];
        leaf_.push_back(none);
        // A sequence sorts before all longer sequences that begin with it.
        for (; begin < end && leaves[order[begin]].tokens.size() == depth; ++begin) {
            leaf_node_[order[begin]] = static_cast<Node>(node);
            if (leaf_.back() == none) {
                leaf_.back() = static_cast<int32_t>(order[begin]);
            }
        }
        first_child_.push_back(static_cast<Node>(ranges.size()));
        while (begin < end) {
            const Token token = leaves[order[begin]].tokens[depth];
            uint32_t child_end = begin + 1;
            while (child_end < end && leaves[order[child_end]].tokens[depth] == token) {
                ++child_end;
            }
            ranges.push_back({begin, child_end, depth + 1});
            token_.push_back(token);
            parent_.push_back(static_cast<Node>(node));
            begin = child_end;
        }
        n_children_.push_back(static_cast<uint32_t>(ranges.size()) - first_child_.back());
    }
    count_undecided();
}

void TokenTrie::count_undecided() {
    undecided_.resize(token_.size());
    std::vector<uint32_t> n_leaves(token_.size());
    // Children have higher numbers than their parent.
    for (size_t node = token_.size(); node-- > 0;) {
        Undecided & here = undecided_[node];
        uint32_t & leaves_here = n_leaves[node];
        leaves_here = leaf_[node] != none ? 1 : 0;
        for (Node child = first_child_[node]; child < first_child_[node] + n_children_[node]; ++child) {
            const Undecided & below = undecided_[child];
            const uint32_t branch = is_branch(child) ? 1 : 0;
            if (is_undecided(child)) {
                here.tokens += below.tokens + 1;
                here.branches += below.branches + branch;
                here.lanes += std::max(below.lanes, 1u);
            }
            here.passes += (below.passes + static_cast<float>(branch)) * static_cast<float>(n_leaves[child]);
            leaves_here += n_leaves[child];
        }
        here.passes /= static_cast<float>(leaves_here);
    }
}

std::vector<Token> TokenTrie::path(Node node) const {
    std::vector<Token> tokens;
    for (; node != root; node = parent_[node]) {
        tokens.push_back(token_[node]);
    }
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
}

int32_t TokenTrie::child(Node node, Token token) const {
    const TokenSpan tokens = children(node);
    const Token * found = std::lower_bound(tokens.begin(), tokens.end(), token);
    if (found == tokens.end() || *found != token) {
        return none;
    }
    return static_cast<int32_t>(first_child_[node] + (found - tokens.begin()));
}

size_t TokenTrie::size_bytes() const {
    constexpr size_t node = sizeof(Token) + 2 * sizeof(Node) + 2 * sizeof(uint32_t) + sizeof(Undecided);
    size_t n_bytes = n_nodes() * node;
    for (const std::string & name : names_) {
        n_bytes += sizeof(Node) + sizeof name + name.size();
    }
    return n_bytes;
}

}  // namespace eliza
