// Computes the logits after many paths of tokens that follow the same prompt.
#pragma once

#include <functional>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/tree_plan.h"
#include "engine/pass/sequence.h"

namespace eliza {

class PathReader {
public:
    // The tokens of the sequence are the prompt.
    PathReader(Sequence & sequence, const Options & options)
        : sequence_(sequence), options_(options), counts_(sequence.counts()), n_prompt_(sequence.tokens().size()) {}
    ~PathReader() { remove_paths(); }
    PathReader(const PathReader &) = delete;
    PathReader & operator=(const PathReader &) = delete;

    // Returns whether the logits of the whole vocabulary are needed after a path.
    using NeedsWhole = std::function<bool(size_t path)>;
    // Takes the logits after a path. They are valid during the call.
    using Take = std::function<void(size_t path, const LogitsRow & row)>;

    // Decodes the paths in as few passes as their tokens need, and calls `take` once for each of them. The paths must
    // be ascending and distinct; the first may be empty. Throws an Error.
    void read(const std::vector<TokenPath> & paths, const NeedsWhole & needs_whole, const Take & take);

    // The same, but passes the paths' numbers to the functions instead of their indices.
    void read(const NumberedPaths & paths, const NeedsWhole & needs_whole, const Take & take) {
        const std::vector<size_t> & numbers = paths.numbers;
        read(
            paths.paths, [&](size_t path) { return needs_whole(numbers[path]); },
            [&](size_t path, const LogitsRow & row) { take(numbers[path], row); });
    }

private:
    struct Job {
        const std::vector<TokenPath> & paths;
        const NeedsWhole & needs_whole;
        const Take & take;
        std::vector<bool> is_read;

        // Whether the row after the prompt is wanted and has not been read.
        bool lacks_prompt() const { return !paths.empty() && paths.front().empty() && !is_read.front(); }

        void on_row(size_t path, const LogitsRow & row) {
            take(path, row);
            is_read[path] = true;
        }
    };

    void read_after_prompt(Job & job);
    void read_in_trees(Job & job);
    void read_long_ones(Job & job);
    void read_trees(Job & job, const std::vector<TokenPath> & paths, size_t first, bool with_prompt);
    void read_one_by_one(Job & job);
    void put_after_prompt(const TokenPath & path, size_t n);
    void remove_paths() { sequence_.truncate(n_prompt_); }

    Sequence & sequence_;
    const Options & options_;
    StreamCounts & counts_;
    const size_t n_prompt_;
};

}  // namespace eliza
