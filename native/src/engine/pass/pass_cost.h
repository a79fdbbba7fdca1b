#pragma once

namespace eliza {

// Measured costs of a pass, in microseconds: of the pass itself, and of each token, row of logits and lane in it. A
// lane costs more after a longer text, because it shares the cells of that text.
struct PassCost {
    double pass = 0, token = 0, row = 0, lane = 0;

    double of(double tokens, double rows, double lanes) const {
        return pass + token * tokens + row * rows + lane * lanes;
    }
};

}  // namespace eliza
