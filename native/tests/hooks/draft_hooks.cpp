// Measures how well text predicts its own continuation, for bench/guessing.py. No model runs.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/draft/ngram_lookup.h"
#include "ngram-map.h"

#define ELIZA_TEST_API extern "C" __attribute__((visibility("default")))

// Simulates a model that generates exactly the tokens after the first n_prompt, with drafts of at most `most` tokens:
// from the library's lookup, or from llama.cpp's simple n-gram lookup of 3 tokens. Writes to `counts` the passes, the
// drafted tokens, the correct tokens, the nanoseconds of all drafts together, and the nanoseconds of the slowest draft.
// The first draft is not considered for the slowest.
ELIZA_TEST_API void eliza_test_guessing(const int32_t * tokens, size_t n, size_t n_prompt, int32_t most, int as_common,
                                        int64_t counts[5]) {
    using clock = std::chrono::steady_clock;
    std::fill(counts, counts + 5, 0);
    eliza::NGramLookup lookup;
    const common_ngram_simple_config simple{3, static_cast<uint16_t>(most)};
    std::vector<llama_token> text(tokens, tokens + n_prompt);
    while (text.size() < n) {
        const auto start = clock::now();
        std::vector<llama_token> drafted;
        if (as_common != 0) {
            drafted = common_ngram_simple_draft(simple, {text.begin(), text.end() - 1}, text.back());
        } else {
            drafted =
                lookup.draft(text, static_cast<int32_t>(std::min<size_t>(static_cast<size_t>(most), n - text.size())));
        }
        const int64_t spent = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - start).count();
        counts[3] += spent;
        counts[4] = counts[0] > 0 ? std::max(counts[4], spent) : 0;
        ++counts[0];
        counts[1] += static_cast<int64_t>(drafted.size());
        for (size_t i = 0; i < drafted.size() && text.size() < n && drafted[i] == tokens[text.size()]; ++i) {
            text.push_back(drafted[i]);
            ++counts[2];
        }
        if (text.size() < n) {
            text.push_back(tokens[text.size()]);
        }
    }
}
