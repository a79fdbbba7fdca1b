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

    // Sorted by tokens, the leaves below a node are a contiguous range. Stable, so that among leaves
    // with the same tokens the first of the payload comes first.
    std::vector<uint32_t> order(leaves.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return leaves[a].tokens < leaves[b].tokens; });

    // The leaves at and below a node, all equal in their first `depth` tokens.
    struct Range {
        uint32_t begin, end, depth;
    };
    std::vector<Range> ranges{{0, static_cast<uint32_t>(order.size()), 0}};
    token_.push_back(none);

    for (size_t node = 0; node < ranges.size(); ++node) {
        auto [begin, end, depth] = ranges[node];
        leaf_.push_back(none);
        // A shorter sequence sorts before those it is a prefix of.
        for (; begin < end && leaves[order[begin]].tokens.size() == depth; ++begin) {
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
            begin = child_end;
        }
        n_children_.push_back(static_cast<uint32_t>(ranges.size()) - first_child_.back());
    }
}

int32_t TokenTrie::child(Node node, Token token) const {
    const TokenSpan tokens = children(node);
    const Token * found = std::lower_bound(tokens.begin(), tokens.end(), token);
    if (found == tokens.end() || *found != token) {
        return none;
    }
    return static_cast<int32_t>(first_child_[node] + (found - tokens.begin()));
}

}  // namespace eliza
