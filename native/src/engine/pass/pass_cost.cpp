#include "engine/pass/pass_cost.h"

#include <algorithm>

namespace eliza {

void PassTimes::Average::add(double more_products, double more_microseconds) {
    constexpr double least_weight = 0.1;  // the average follows the last ten passes or so
    const double weight = std::max(least_weight, 1.0 / static_cast<double>(++n));
    products += weight * (more_products - products);
    microseconds += weight * (more_microseconds - microseconds);
}

void PassTimes::add(size_t n_tokens, size_t n_rows, int64_t microseconds) {
    constexpr size_t few_tokens = 4;
    const auto products = static_cast<double>(model_.n_products(n_tokens, n_rows));
    const std::lock_guard<std::mutex> lock(mutex_);
    (n_tokens <= few_tokens ? small_ : large_).add(products, static_cast<double>(microseconds));
}

bool PassTimes::are_known() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return small_.n + large_.n > 0;
}

PassCost PassTimes::cost(bool stops_before_head) const {
    const auto of_token = static_cast<double>(model_.n_products(1, 0));
    // n_products() leaves out a single row that is read with the model's weights.
    const double of_row = stops_before_head ? 0.0 : static_cast<double>(model_.n_products(0, 2)) / 2;
    // Measured: about 0.2 on two to eight cores, 0.01 on a GPU.
    const double assumed_share = model_.is_offloaded() ? 0.01 : 0.2;
    const std::lock_guard<std::mutex> lock(mutex_);
    double pass = 1.0, product = assumed_share / of_token;
    if (small_.n > 0 && large_.n > 0 && large_.products > small_.products) {
        product = std::max(0.0, (large_.microseconds - small_.microseconds) / (large_.products - small_.products));
        pass = std::max(0.0, small_.microseconds - product * small_.products);
    } else if (const Average & known = small_.n > 0 ? small_ : large_; known.n > 0) {
        pass = known.microseconds / (1.0 + product * known.products);
        product *= pass;
    }
    return {pass, product * of_token, product * of_row, 0.0};
}

}  // namespace eliza
