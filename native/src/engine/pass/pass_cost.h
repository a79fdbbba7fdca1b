#pragma once

namespace eliza {

// Measured costs of a pass, in microseconds: of the pass itself, and of each token, row of logits and lane in it. A
// lane is one path of a tree (see tree_batch.h). It costs more after a longer text, because every cell of the KV cache
// that holds the text must be assigned to the lane.
struct PassCost {
    double pass = 0, token = 0, row = 0, lane = 0;

    double of(double tokens, double rows, double lanes) const { return pass + of_parts(tokens, rows, lanes); }
    double of_parts(double tokens, double rows, double lanes) const {
        return token * tokens + row * rows + lane * lanes;
    }
};

}  // namespace eliza
