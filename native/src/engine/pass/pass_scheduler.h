// Puts requests into forward passes: which requests share a pass, with which tokens, and what each gets from it.
//
// Used by one thread at a time, the leader of the queue (engine/pass/pass_queue.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/pass/pass_request.h"
#include "engine/pass/pass_runner.h"
#include "error.h"

namespace eliza {

class PassScheduler {
public:
    // A long prompt is cut into pieces of at most n_batch tokens. With `by_time`, if a caller wants progress reports or
    // other requests wait, the length of the pieces also depends on the measured time of earlier passes.
    PassScheduler(PassRunner & runner, KvCache & cache, bool by_time)
        : runner_(runner), cache_(cache), by_time_(by_time) {}
    PassScheduler(const PassScheduler &) = delete;
    PassScheduler & operator=(const PassScheduler &) = delete;

    // The requests of one pass, all of the same kind: text or logits. Requests for logits go first, because they take
    // much less time than a pass with text; their streams can then join it. See also PassRequest::part.
    struct Pass {
        PassRequest::Kind kind;
        std::vector<PassRequest *> members;
    };

    // Selects requests for the next pass from the waiting ones, which are in the order of the queue. Suspended requests
    // are selected once there is room for them. Returns no requests if all have to wait for that. With `may_evict`,
    // the cells of streams that have no request are taken for the first suspended request.
    Pass select(const std::vector<PassRequest *> & waiting, bool may_evict);

    // Runs the pass. The outcome of each request, and its error, are in the request.
    void run(const Pass & pass);

    // The decoded share of a request's text, from 0 to 1.
    static float fraction(const PassRequest & request) {
        return 1.0f - static_cast<float>(request.n_left()) / static_cast<float>(request.n_to_decode);
    }

    // The number of passes, the sum of sequences over all passes, and the recent average of sequences in a pass. Safe
    // from any thread.
    int64_t n_passes() const { return n_passes_.load(std::memory_order_relaxed); }
    int64_t n_sequences() const { return n_sequences_.load(std::memory_order_relaxed); }
    double sequences_a_pass() const { return sequences_a_pass_.load(std::memory_order_relaxed); }

private:
    using Requests = std::vector<PassRequest *>;

    void prepare(PassRequest & request);
    bool waits_for_shared_prefix(const PassRequest & request, const Requests & members) const;
    size_t room(const Requests & waiting) const;
    size_t piece() const;
    Requests admitted(const Requests & texts, bool may_evict);
    bool has_room_for(const PassRequest & request) const;
    void give_up_cells(Requests & members);
    Requests select_texts(const Requests & waiting);
    void compute_logits(const Requests & requests);
    void decode(Requests members);
    void add_to(Batch & batch, PassRequest & request);
    static Rows rows_for(const Requests & members);
    static PassRunner::Layers layers_for(const Requests & members);
    void count_pass(const Requests & members);
    void hand_out(PassRequest & request, size_t n_members, int64_t microseconds);
    void hand_out_states(PassRequest & request);
    void hand_out_rows(PassRequest & request);
    void take_back(PassRequest & request, bool was_begun);
    ContextFull context_full(const PassRequest & request) const;

    PassRunner & runner_;
    KvCache & cache_;
    const bool by_time_;
    std::atomic<int64_t> n_passes_{0};
    std::atomic<int64_t> n_sequences_{0};
    std::atomic<double> sequences_a_pass_{1.0};
};

}  // namespace eliza
