// What a stream counts about its own tokens; eliza_llm_stream_stats_t explains the counters of the same names.
#pragma once

#include <cstdint>

#include "engine/base/options.h"
#include "engine/pass/sequence.h"

namespace eliza {

struct StreamCounts {
    int64_t prompt_tokens = 0;
    int64_t prompt_tokens_reused = 0;
    int64_t prompt_passes = 0;
    int64_t generated_tokens = 0;
    int64_t forward_passes_saved = 0;
    int64_t decisions = 0;
    int64_t candidates_seen = 0;
    int64_t tokens_forced = 0;
    int64_t tokens_sampled = 0;
    int64_t spans = 0;
    int64_t trie_departures = 0;
    int64_t span_limit_hits = 0;
    int64_t tree_passes = 0;
    int64_t select_ns = 0;
    int64_t tokens_drafted = 0;
    int64_t tokens_accepted = 0;
    int32_t strategies = 0;

    // Counts a token that needs no logits, because it has no alternative.
    void add_forced(const Sequence & sequence) {
        ++tokens_forced;
        forward_passes_saved += sequence.has_undecoded() ? 1 : 0;
    }
};

// Counts a token that has no alternative. The reference strategy computes its logits nevertheless.
inline void settle_forced(Sequence & sequence, const Options & options, StreamCounts & counts) {
    if (options.strategy != Strategy::token_by_token) {
        counts.add_forced(sequence);
        return;
    }
    sequence.logits();
    ++counts.tokens_forced;
}

}  // namespace eliza
