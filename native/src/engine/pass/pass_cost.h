#pragma once

namespace eliza {

// Measured costs of a pass, in microseconds. A lane costs more behind a longer text, whose cells it shares.
struct PassCost {
    double pass = 0, token = 0, row = 0, lane = 0;

    double of(double tokens, double rows, double lanes) const {
        return pass + token * tokens + row * rows + lane * lanes;
    }
};

}  // namespace eliza
