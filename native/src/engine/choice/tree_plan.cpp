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

class Planner {
public:
    Planner(const TokenTrie & trie, TreeLimits limits) : trie_(trie), limits_(limits) {}

    std::vector<TreeBatch> plan(TokenTrie::Node from) {
        struct Visit {
            TokenTrie::Node node;
            size_t depth;
        };
        std::vector<Visit> to_visit;
        const auto push_children = [&](TokenTrie::Node node, size_t depth) {
            const TokenTrie::Node first = trie_.first_child(node);
            for (TokenTrie::Node child = first + trie_.children(node).size; child-- > first;) {
                if (trie_.is_undecided(child)) {
                    to_visit.push_back({child, depth});
                }
            }
        };
        push_children(from, 0);
        while (!to_visit.empty()) {
            const auto [node, depth] = to_visit.back();
            to_visit.pop_back();
            path_.resize(depth);
            if (!add(node)) {
                return {};
            }
            push_children(node, depth + 1);
        }
        finish_batch();
        return std::move(batches_);
    }

private:
    // Adds the node after the current path. Starts a new batch if the current batch is full.
    bool add(TokenTrie::Node node) {
        in_batch_.resize(path_.size());
        if (!fits(node)) {
            if (static_cast<int32_t>(path_.size()) >= limits_.tokens || limits_.rows < 1 || limits_.lanes < 1) {
                return false;
            }
            finish_batch();
            const std::vector<TokenTrie::Node> ancestors = std::exchange(path_, {});
            in_batch_.clear();
            for (const TokenTrie::Node ancestor : ancestors) {
                append(ancestor, false);  // its logits are in an earlier batch
            }
        }
        append(node, trie_.is_branch(node));
        return true;
    }

    bool fits(TokenTrie::Node node) const {
        return static_cast<int32_t>(batch_.nodes.size()) < limits_.tokens &&
               batch_.n_rows + (trie_.is_branch(node) ? 1 : 0) <= limits_.rows &&
               n_lanes_ + (starts_lane() ? 1 : 0) <= limits_.lanes;
    }

    int32_t last() const { return static_cast<int32_t>(batch_.nodes.size()) - 1; }

    // A node that does not directly follow its parent starts a lane of its own.
    bool starts_lane() const { return in_batch_.empty() || in_batch_.back() != last(); }

    void append(TokenTrie::Node node, bool wants_logits) {
        n_lanes_ += starts_lane() ? 1 : 0;
        batch_.n_rows += wants_logits ? 1 : 0;
        const int32_t parent = in_batch_.empty() ? -1 : in_batch_.back();
        const auto depth = static_cast<int32_t>(path_.size());
        batch_.nodes.push_back({node, trie_.token(node), parent, depth, wants_logits, -1, -1});
        path_.push_back(node);
        in_batch_.push_back(last());
    }

    void finish_batch() {
        if (!batch_.nodes.empty()) {
            assign_lanes(batch_);
            batches_.push_back(std::move(batch_));
        }
        batch_ = {};
        n_lanes_ = 0;
    }

    const TokenTrie & trie_;
    const TreeLimits limits_;
    std::vector<TreeBatch> batches_;
    TreeBatch batch_;
    int32_t n_lanes_ = 0;
    std::vector<TokenTrie::Node> path_;  // from the start to the parent of the next node
    std::vector<int32_t> in_batch_;      // indices of the path's nodes in the batch
};

}  // namespace

std::vector<TreeBatch> plan_tree(const TokenTrie & trie, TokenTrie::Node from, TreeLimits limits) {
    return Planner(trie, limits).plan(from);
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

bool fit_one_tree(const std::vector<TokenPath> & paths, TreeLimits limits) {
    const bool is_too_long = std::any_of(paths.begin(), paths.end(), [&](const TokenPath & path) {
        return path.size() > static_cast<size_t>(limits.tokens);
    });
    return !is_too_long && plan_paths(paths, limits).size() <= 1;
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
