// The costs of forward passes, learned from the passes that run anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "engine/model/model.h"

namespace eliza {

// Costs in microseconds: of a pass itself, and of each token, row of logits and lane in it. A lane is one path of a
// tree (see tree_batch.h). It costs more after a longer text, because every cell of the KV cache that holds the text
// must be assigned to the lane.
struct PassCost {
    double pass = 0, token = 0, row = 0, lane = 0;

    double of(double tokens, double rows, double lanes) const { return pass + of_parts(tokens, rows, lanes); }
    double of_parts(double tokens, double rows, double lanes) const {
        return token * tokens + row * rows + lane * lanes;
    }
};

// The time of a pass as a line: a fixed part, and a part for each product that it computes (Model::n_products). The
// line runs through two averages: of passes with a few tokens, and of passes with more. Until both are known, a token
// is assumed to take a fixed share of the time of a pass.
//
// Safe from any thread.
class PassTimes {
public:
    explicit PassTimes(const Model & model) : model_(model) {}

    // Adds a pass that computed all layers. n_rows counts the rows whose logits the pass computed.
    void add(size_t n_tokens, size_t n_rows, int64_t microseconds);

    // Whether there was a pass.
    bool are_known() const;

    // Returns the costs without lanes. If a pass may stop before the output head, a row of logits costs nothing. Before
    // the first pass, the costs are right only in relation to each other.
    PassCost cost(bool stops_before_head) const;

private:
    struct Average {
        int64_t n = 0;
        double products = 0, microseconds = 0;
        void add(double more_products, double more_microseconds);
    };

    const Model & model_;
    mutable std::mutex mutex_;
    Average small_, large_;
};

}  // namespace eliza
