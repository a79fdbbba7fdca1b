#include "engine/choice/state_means.h"

#include <algorithm>
#include <string>
#include <utility>

#include "error.h"
#include "json_input.h"

namespace eliza {

StateMeans::StateMeans(const Model & model, std::vector<int32_t> layers, std::vector<Range> ranges, size_t n,
                       float * out, size_t cap)
    : layers_(std::move(layers)),
      ranges_(std::move(ranges)),
      first_(n),
      n_embd_(static_cast<size_t>(llama_model_n_embd(model.get()))),
      out_(out) {
    const int32_t n_layers = llama_model_n_layer(model.get());
    for (size_t i = 0; i < layers_.size(); ++i) {
        if (layers_[i] < 1 || layers_[i] > n_layers || (i > 0 && layers_[i] <= layers_[i - 1])) {
            throw invalid_argument(at("layers", i) + ": expected ascending numbers from 1 to " +
                                   std::to_string(n_layers) + ", got " + std::to_string(layers_[i]));
        }
    }
    for (size_t i = 0; i < ranges_.size(); ++i) {
        if (ranges_[i].begin >= ranges_[i].end || ranges_[i].end > n) {
            throw invalid_argument(at("ranges", i) + ": expected a non-empty part of " + std::to_string(n) +
                                   " tokens, got " + std::to_string(ranges_[i].begin) + " to " +
                                   std::to_string(ranges_[i].end));
        }
        first_ = std::min(first_, ranges_[i].begin);
    }
    if (layers_.empty() || ranges_.empty()) {
        throw invalid_argument(std::string(layers_.empty() ? "layers" : "ranges") + ": expected at least 1, got none");
    }
    const size_t size = layers_.size() * ranges_.size() * n_embd_;
    if (cap < size) {
        throw invalid_argument("cap: expected room for " + std::to_string(size) + " values, got " +
                               std::to_string(cap));
    }
    sums_.resize(size);
}

void StateMeans::add(size_t token, int32_t layer, const float * values) {
    const auto place = static_cast<size_t>(std::find(layers_.begin(), layers_.end(), layer) - layers_.begin());
    for (size_t range = 0; range < ranges_.size(); ++range) {
        if (ranges_[range].begin <= token && token < ranges_[range].end) {
            double * sum = sums_.data() + (place * ranges_.size() + range) * n_embd_;
            std::transform(values, values + n_embd_, sum, sum, [](float a, double b) { return a + b; });
        }
    }
}

void StateMeans::write() const {
    for (size_t i = 0; i < sums_.size(); ++i) {
        const Range & range = ranges_[i / n_embd_ % ranges_.size()];
        out_[i] = static_cast<float>(sums_[i] / static_cast<double>(range.end - range.begin));
    }
}

}  // namespace eliza
