#include "engine/choice/path_reader.h"

#include <algorithm>

#include "error.h"

namespace eliza {

void PathReader::read(const std::vector<TokenPath> & paths, const NeedsWhole & needs_whole, const Take & take) {
    Job job{paths, needs_whole, take, std::vector<bool>(paths.size(), false)};
    if (!sequence_.has_undecoded() || options_.strategy == Strategy::token_by_token) {
        read_after_prompt(job);
    }
    if (options_.strategy != Strategy::token_by_token) {
        read_in_trees(job);
        read_after_prompt(job);
        read_long_ones(job);
    }
    read_one_by_one(job);
    remove_paths();
}

void PathReader::read_after_prompt(Job & job) {
    if (!job.lacks_prompt()) {
        return;
    }
    if (!job.needs_whole(0)) {
        sequence_.decode(Rows::some);
        job.on_row(0, sequence_.row());
    } else {
        job.on_row(0, LogitsRow(sequence_.logits()));
    }
}

// Decodes as many whole paths in one pass as fit, the first of them together with the end of the prompt. Skips paths
// that are longer than a pass.
void PathReader::read_in_trees(Job & job) {
    const size_t n_empty = !job.paths.empty() && job.paths.front().empty() ? 1 : 0;
    read_trees(job, {job.paths.begin() + static_cast<std::ptrdiff_t>(n_empty), job.paths.end()}, n_empty,
               /*with_prompt=*/true);
}

// Reads paths that are longer than a pass. All tokens of such a path except the last are appended to the prompt. Its
// last token, and the rest of all longer paths that begin with this path, are decoded as trees.
void PathReader::read_long_ones(Job & job) {
    const TreeLimits limits = sequence_.decoder().tree_limits();
    for (size_t first = 0; first < job.paths.size() && limits.lanes > 0; ++first) {
        if (job.is_read[first]) {
            continue;
        }
        const TokenPath & shortest = job.paths[first];
        const size_t n_front = shortest.size() - 1;
        std::vector<TokenPath> rest;
        for (size_t i = first; i < job.paths.size() && TokenPath::alike(job.paths[i], shortest) == shortest.size();
             ++i) {
            rest.push_back(job.paths[i].behind(n_front));
        }
        put_after_prompt(shortest, n_front);
        read_trees(job, rest, first, /*with_prompt=*/false);
    }
}

// Decodes paths as trees after the tokens of the sequence. paths[i] is the end of job.paths[first + i].
void PathReader::read_trees(Job & job, const std::vector<TokenPath> & paths, size_t first, bool with_prompt) {
    for (const TreeBatch & tree : plan_paths(paths, sequence_.decoder().tree_limits())) {
        const bool wants_last = with_prompt && job.lacks_prompt();
        bool whole = wants_last && job.needs_whole(0);
        for (const TreeBatch::Node & node : tree.nodes) {
            whole = whole || (node.wants_logits && job.needs_whole(first + node.node));
        }
        const auto on_row = [&](int32_t place, const LogitsRow & row) {
            job.on_row(place < 0 ? 0 : first + tree.nodes[static_cast<size_t>(place)].node, row);
        };
        try {
            sequence_.decode_tree(tree, whole ? Rows::whole : Rows::some, wants_last, on_row, [] { return -1; });
        } catch (const ContextFull &) {
            return;  // there may still be room for one path at a time
        }
        ++counts_.tree_passes;
        counts_.strategies |= ELIZA_STRATEGY_TREE;
    }
}

// Reads the remaining paths one at a time: paths that could not be read in a tree. If the model's cache cannot fork,
// or with the reference strategy, no path has been read in a tree.
void PathReader::read_one_by_one(Job & job) {
    if (std::find(job.is_read.begin(), job.is_read.end(), false) == job.is_read.end()) {
        return;
    }
    remove_paths();
    // Tokens cannot be removed from a recurrent state, so the state is copied and restored.
    const bool puts_back = sequence_.decoder().model().is_recurrent();
    const std::vector<llama_token> prompt = sequence_.tokens();
    const std::vector<uint8_t> state = puts_back ? sequence_.copy_state() : std::vector<uint8_t>();
    for (size_t path = 0; path < job.paths.size(); ++path) {
        if (job.is_read[path]) {
            continue;
        }
        put_after_prompt(job.paths[path], job.paths[path].size());
        job.on_row(path, LogitsRow(sequence_.logits()));
        if (puts_back) {
            remove_paths();
            try {
                sequence_.restore_state(prompt, state);
            } catch (const Error & error) {  // other streams fill the cache: the next path decodes the prompt again
                if (error.status() == ELIZA_ERR_CANCELLED) {
                    throw;
                }
            }
        }
    }
    const bool reference = options_.strategy == Strategy::token_by_token;
    counts_.strategies |= reference ? ELIZA_STRATEGY_TOKEN_BY_TOKEN : ELIZA_STRATEGY_SKIP_AHEAD;
}

// Makes the sequence consist of the prompt and the first n tokens of a path. Keeps tokens that it already has.
void PathReader::put_after_prompt(const TokenPath & path, size_t n) {
    const std::vector<llama_token> & held = sequence_.tokens();
    size_t n_common = 0;
    while (n_common < std::min(n, held.size() - n_prompt_) && held[n_prompt_ + n_common] == path[n_common]) {
        ++n_common;
    }
    std::vector<llama_token> more;
    for (size_t i = n_common; i < n; ++i) {
        more.push_back(path[i]);
    }
    sequence_.truncate(n_prompt_ + n_common);
    sequence_.append(more.data(), more.size());
}

}  // namespace eliza
