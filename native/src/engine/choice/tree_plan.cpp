#include "engine/choice/tree_plan.h"

#include <algorithm>
#include <utility>

namespace eliza {
namespace {

// A node without children in the batch is the end of a lane. Every other node spans the lanes of its children.
void assign_lanes(TreeBatch & batch) {
    std::vector<TreeBatch::Node> & nodes = batch.nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
        const bool ends_lane = i + 1 == nodes.size() || nodes[i + 1].parent != static_cast<int32_t>(i);
        if (!ends_lane) {
            continue;
        }
        const int32_t lane = batch.n_lanes++;
        for (auto at = static_cast<int32_t>(i); at >= 0; at = nodes[static_cast<size_t>(at)].parent) {
            TreeBatch::Node & node = nodes[static_cast<size_t>(at)];
            if (node.lanes_begin < 0) {
                node.lanes_begin = lane;
            }
            node.lanes_end = lane + 1;
        }
    }
}

}  // namespace

std::optional<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits) {
    if (!is_one_tree(trie.undecided_below(from), limits)) {
        return std::nullopt;
    }
    TreeBatch batch;
    struct Visit {
        TokenTrie::Node node;
        int32_t parent, depth;
    };
    std::vector<Visit> to_visit;
    const auto push_children = [&](TokenTrie::Node node, int32_t place, int32_t depth) {
        const TokenTrie::Node first = trie.first_child(node);
        for (TokenTrie::Node child = first + trie.children(node).size; child-- > first;) {
            if (trie.is_undecided(child)) {
                to_visit.push_back({child, place, depth});
            }
        }
    };
    push_children(from, -1, 0);
    while (!to_visit.empty()) {
        const auto [node, parent, depth] = to_visit.back();
        to_visit.pop_back();
        const auto place = static_cast<int32_t>(batch.nodes.size());
        const bool is_branch = trie.is_branch(node);
        batch.nodes.push_back({node, trie.token(node), parent, depth, is_branch, -1, -1});
        batch.n_rows += is_branch ? 1 : 0;
        push_children(node, place, depth + 1);
    }
    assign_lanes(batch);
    return batch;
}

size_t TokenPath::alike(const TokenPath & a, const TokenPath & b) {
    // If both paths belong to one ending, their common pieces are the same array, which needs no comparison.
    size_t n = a.common_.data == b.common_.data ? std::min(a.common_.size, b.common_.size) : 0;
    while (n < std::min(a.size(), b.size()) && a[n] == b[n]) {
        ++n;
    }
    return n;
}

bool TokenPath::operator<(const TokenPath & other) const {
    const size_t n = alike(*this, other);
    return n < other.size() && (n == size() || (*this)[n] < other[n]);
}

TokenPath TokenPath::behind(size_t n) const {
    const auto n_common = static_cast<uint32_t>(std::min<size_t>(n, common_.size));
    const auto own = own_.begin() + static_cast<std::ptrdiff_t>(n - n_common);
    return {{common_.data + n_common, common_.size - n_common}, {own, own_.end()}};
}

NumberedPaths::NumberedPaths(std::vector<std::pair<TokenPath, size_t>> unsorted) {
    std::sort(unsorted.begin(), unsorted.end(), [](const auto & a, const auto & b) { return a.first < b.first; });
    for (auto & [path, number] : unsorted) {
        paths.push_back(std::move(path));
        numbers.push_back(number);
    }
}

bool fit_one_tree(const std::vector<TokenPath> & paths, TreeLimits limits) {
    const bool is_too_long = std::any_of(paths.begin(), paths.end(), [&](const TokenPath & path) {
        return path.size() > static_cast<size_t>(limits.tokens);
    });
    const ptrdiff_t n_empty = !paths.empty() && paths.front().empty() ? 1 : 0;
    return !is_too_long && plan_paths({paths.begin() + n_empty, paths.end()}, limits).size() <= 1;
}

std::vector<TreeBatch> plan_paths(const std::vector<TokenPath> & paths, TreeLimits limits) {
    std::vector<TreeBatch> batches;
    TreeBatch batch;
    std::vector<int32_t> places;  // indices of the previous path's nodes in the batch
    const auto finish = [&] {
        if (!batch.nodes.empty()) {
            assign_lanes(batch);
            batches.push_back(std::exchange(batch, {}));
        }
        places.clear();
    };
    int32_t n_lanes = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
        const TokenPath & path = paths[i];
        const auto n_path = static_cast<int32_t>(path.size());
        if (n_path > limits.tokens || limits.rows < 1 || limits.lanes < 1) {
            continue;
        }
        size_t n_common = 0;
        while (n_common < std::min(places.size(), path.size()) &&
               batch.nodes[static_cast<size_t>(places[n_common])].token == path[n_common]) {
            ++n_common;
        }
        const auto n_nodes = static_cast<int32_t>(batch.nodes.size());
        const bool fits = n_nodes + n_path - static_cast<int32_t>(n_common) <= limits.tokens &&
                          batch.n_rows < limits.rows && n_lanes + (n_common < places.size() ? 1 : 0) <= limits.lanes;
        if (!fits) {
            finish();
            n_common = 0;
        }
        n_lanes = places.empty() ? 1 : n_lanes + (n_common < places.size() ? 1 : 0);
        places.resize(n_common);
        for (size_t depth = n_common; depth < path.size(); ++depth) {
            const int32_t parent = places.empty() ? -1 : places.back();
            places.push_back(static_cast<int32_t>(batch.nodes.size()));
            batch.nodes.push_back({0, path[depth], parent, static_cast<int32_t>(depth), false, -1, -1});
        }
        TreeBatch::Node & last = batch.nodes[static_cast<size_t>(places.back())];
        last.node = static_cast<TokenTrie::Node>(i);
        last.wants_logits = true;
        ++batch.n_rows;
    }
    finish();
    return batches;
}

bool is_one_tree(const TokenTrie::Undecided & undecided, TreeLimits limits) {
    return undecided.tokens > 0 && static_cast<int32_t>(undecided.tokens) <= limits.tokens &&
           static_cast<int32_t>(undecided.branches) <= limits.rows &&
           static_cast<int32_t>(undecided.lanes) <= limits.lanes;
}

bool is_tree_cheaper(const TokenTrie::Undecided & undecided, size_t n_waiting, const PassCost & cost) {
    const auto waiting = static_cast<double>(n_waiting);
    const double tree = cost.of(waiting + undecided.tokens, 1 + undecided.branches, undecided.lanes);
    const double tokens_a_pass = static_cast<double>(undecided.tokens) / undecided.branches;
    const double one_by_one =
        cost.of(waiting, 1, 0) + static_cast<double>(undecided.passes) * cost.of(tokens_a_pass, 1, 0);
    return tree < one_by_one;
}

}  // namespace eliza
