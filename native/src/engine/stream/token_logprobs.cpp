#include "engine/stream/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "error.h"
#include "sampling/token_selector.h"

namespace eliza {

void TokenLogprobs::set(int32_t n_top, int32_t n_vocab) {
    const int32_t most = std::min(most_top, n_vocab);
    if (n_top < off || n_top > most) {
        throw invalid_argument("n_top " + std::to_string(n_top) + " is not -1 (off) or 0 to " + std::to_string(most));
    }
    forget();
    n_top_ = n_top;
}

void TokenLogprobs::forget() {
    looked_at_.clear();
    rows_.clear();
    n_told_ = 0;
}

void TokenLogprobs::look_at(const float * row, int32_t n_vocab, llama_token token) {
    const double total = finite_total(log_sum_exp(row, static_cast<size_t>(n_vocab)));
    const auto entry = [&](llama_token of) { return eliza_token_logprob_t{of, static_cast<float>(row[of] - total)}; };
    const auto is_likelier = [&](llama_token a, llama_token b) { return row[a] != row[b] ? row[a] > row[b] : a < b; };

    looked_at_.assign(1, entry(token));
    if (n_top_ == 0) {
        return;
    }
    // A heap of the most probable tokens so far. The least probable of them is at the front.
    std::vector<llama_token> top(static_cast<size_t>(n_top_));
    for (int32_t i = 0; i < n_top_; ++i) {
        top[static_cast<size_t>(i)] = i;
    }
    std::make_heap(top.begin(), top.end(), is_likelier);
    for (llama_token other = n_top_; other < n_vocab; ++other) {
        if (row[other] > row[top.front()]) {
            std::pop_heap(top.begin(), top.end(), is_likelier);
            top.back() = other;
            std::push_heap(top.begin(), top.end(), is_likelier);
        }
    }
    std::sort_heap(top.begin(), top.end(), is_likelier);
    std::transform(top.begin(), top.end(), std::back_inserter(looked_at_), entry);
}

void TokenLogprobs::keep(llama_token token) {
    if (!is_on()) {
        return;
    }
    if (looked_at_.empty()) {
        looked_at_.assign(entries_per_token(), {LLAMA_TOKEN_NULL, NAN});
        looked_at_.front().token = token;
    }
    rows_.insert(rows_.end(), looked_at_.begin(), looked_at_.end());
    looked_at_.clear();
}

size_t TokenLogprobs::take(eliza_token_logprob_t * out, size_t cap) {
    if (!is_on()) {
        throw invalid_argument("log-probabilities are off: set them before the tokens are generated");
    }
    if (cap < n_told_) {
        throw invalid_argument("cap is " + std::to_string(cap) + ", there are " + std::to_string(n_told_) +
                               " entries to take");
    }
    const auto end = rows_.begin() + static_cast<ptrdiff_t>(n_told_);
    std::copy(rows_.begin(), end, out);
    rows_.erase(rows_.begin(), end);
    return std::exchange(n_told_, 0) / entries_per_token();
}

}  // namespace eliza
