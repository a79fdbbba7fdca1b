// What a stream counts about its own tokens. Stream::stats() fills in what its passes count.
#pragma once

#include "eliza/eliza_inference.h"
#include "engine/base/options.h"
#include "engine/pass/sequence.h"

namespace eliza {

struct StreamCounts : eliza_llm_stream_stats_t {
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
