#include "engine/pass/pass_scheduler.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "engine/pass/batch.h"

namespace eliza {

using Outcome = PassRequest::Part::Outcome;

namespace {

// True if the request is a stream's next token, which its caller waits for.
bool is_generating(const PassRequest * request) { return request->n_left() == 1 && !request->slot.cached.empty(); }

}  // namespace

// Makes the slot hold the longest prefix of the text that is in the cache. This is repeated before each pass,
// because other requests may have decoded the same text. The cache has keys and values but no logits, so tokens whose
// rows are wanted are always decoded.
void PassScheduler::prepare(PassRequest & request) {
    const size_t most = request.n_cacheable();
    const size_t n_held = request.slot.cached.size();
    const size_t n_before = request.is_prepared ? n_held : std::min(request.n_known, n_held);
    const size_t n = cache_.take_prefix(request.slot, request.text, most);
    if (const size_t known = std::max({n_before, request.appended_from, request.n_reached}); n > known) {
        request.counts.prompt_tokens_reused += request.reads_prompt ? static_cast<int64_t>(n - known) : 0;
    }
    request.n_reached = std::max(request.n_reached, n);
    if (!request.is_prepared) {
        request.is_prepared = true;
        request.n_matched = n;
        request.n_to_decode = request.n_left();
    }
}

// True if this pass decodes a large part of the request's text for another request. After the pass, the cache holds
// that part for both. It does not hold tokens of a pass that may stop early.
bool PassScheduler::waits_for_shared_prefix(const PassRequest & request, const Requests & members) const {
    constexpr size_t worth_a_pass = 32;  // tokens
    if (!cache_.shares_cells()) {
        return false;
    }
    const size_t n_held = request.slot.cached.size();
    return std::any_of(members.begin(), members.end(), [&](const PassRequest * member) {
        const size_t n_kept = member->may_stop() ? member->n_complete : member->n_text;
        const size_t end = std::min({member->part.begin + member->part.n, n_kept, request.n_cacheable()});
        return end >= n_held + worth_a_pass && std::equal(request.text, request.text + end, member->text);
    });
}

// The number of tokens that the next pass may have. If a caller wants progress reports, or streams that need one token
// wait beside a long prompt, a pass should take about half a second.
size_t PassScheduler::room(const Requests & waiting) const {
    const auto n_batch = static_cast<size_t>(runner_.n_batch());
    const bool reports = std::any_of(waiting.begin(), waiting.end(),
                                     [](const PassRequest * request) { return request->progress != nullptr; });
    const bool generates = waiting.size() > 1 && std::any_of(waiting.begin(), waiting.end(), is_generating);
    if (!by_time_ || !(reports || generates)) {
        return n_batch;
    }
    size_t most = std::max(piece(), 2 * waiting.size());  // requests with a single token must not wait for the prompt
    for (const PassRequest * request : waiting) {
        most = std::max(most, request->n_all_rows() + request->n_nodes());  // these tokens stay together
    }
    return std::min(most, n_batch);
}

// The length of the piece of a prompt. The costs of a pass that do not depend on its length, such as reading the
// weights, must not become the largest part of it.
size_t PassScheduler::piece() const {
    constexpr double goal = 400e3;  // microseconds
    constexpr double least = 32;    // tokens
    if (!runner_.knows_cost()) {
        return static_cast<size_t>(least);
    }
    const PassCost cost = runner_.cost();
    const double n_tokens = std::max(goal - cost.pass, cost.pass) / std::max(cost.token, 1e-3);
    return static_cast<size_t>(std::clamp(n_tokens, least, std::max<double>(least, runner_.n_batch())));
}

PassScheduler::Pass PassScheduler::select(const Requests & waiting, bool may_evict) {
    Requests texts, logits;
    for (PassRequest * request : waiting) {
        request->part = {};
        (request->kind == PassRequest::Kind::text ? texts : logits).push_back(request);
    }
    if (!logits.empty()) {
        return {PassRequest::Kind::logits, logits};
    }
    texts = admitted(texts, may_evict);
    for (PassRequest * request : texts) {
        try {
            prepare(*request);
        } catch (...) {  // must not end the request of the thread that runs the pass
            request->fail(std::current_exception());
        }
    }
    const auto has_failed = [](const PassRequest * request) { return request->error != nullptr; };
    texts.erase(std::remove_if(texts.begin(), texts.end(), has_failed), texts.end());
    return {PassRequest::Kind::text, texts.empty() ? texts : select_texts(texts)};
}

// Leaves out the suspended requests for which there is no room yet, and the new requests of streams that were opened
// after a suspended one: otherwise short requests could keep a long one waiting for ever.
PassScheduler::Requests PassScheduler::admitted(const Requests & texts, bool may_evict) {
    PassRequest * first = nullptr;  // the suspended request whose stream was opened first
    for (PassRequest * request : texts) {
        if (request->is_suspended && (first == nullptr || request->slot.opened < first->slot.opened)) {
            first = request;
        }
    }
    if (first == nullptr) {
        return texts;
    }
    if (has_room_for(*first)) {
        first->is_suspended = false;
        return {first};
    }
    const auto is_admitted = [&](const PassRequest * request) {
        const bool is_new = request->n_known == 0 && request->slot.cached.empty();
        return !request->is_suspended && (!is_new || request->slot.opened <= first->slot.opened);
    };
    Requests found;
    std::copy_if(texts.begin(), texts.end(), std::back_inserter(found), is_admitted);
    if (!found.empty() || !may_evict) {
        return found;
    }
    for (Slot * idle; !has_room_for(*first) && (idle = cache_.slots().last_opened(first->slot)) != nullptr;) {
        cache_.evict(*idle);
    }
    first->is_suspended = false;
    return {first};
}

// Returns whether a suspended request can continue. The other streams need cells for their next tokens, too: a request
// that continues too early would soon be suspended again.
bool PassScheduler::has_room_for(const PassRequest & request) const {
    constexpr size_t spare = 16;  // cells for each stream
    const size_t n_streams = static_cast<size_t>(cache_.slots().n_taken());
    const size_t n_needed = cache_.n_needed_cells(request.slot, request.text, request.n_text) + request.n_nodes();
    const bool holds_all = n_needed == request.n_text + request.n_nodes();  // of what the other streams need
    const bool seems_to_fit = holds_all || n_needed + spare * n_streams <= llama_n_ctx(runner_.context());
    const size_t n_elsewhere = cache_.n_wanted_elsewhere(request.slot);
    return n_elsewhere == 0 || (n_elsewhere < request.n_refused && seems_to_fit);
}

// First the request that has waited longest, if there is room for all of it. Then all requests that need no more than
// their share of a batch. Then the others in their order, as far as there is room. A text that is longer than a batch
// gets at least half of the batch.
PassScheduler::Requests PassScheduler::select_texts(const Requests & waiting) {
    Requests members;
    const auto max_rows = static_cast<size_t>(std::max(runner_.max_rows(), cache_.slots().size()));
    size_t n_tokens = 0, n_rows = 0;
    int32_t n_lanes = 0;
    const auto add = [&](PassRequest & request, size_t room) {
        if (waits_for_shared_prefix(request, members)) {
            return;
        }
        PassRequest::Part & part = request.part;
        part.begin = request.slot.cached.size();
        const int32_t lanes = request.tree != nullptr ? request.tree->n_lanes : 0;
        const size_t free_rows = max_rows - std::min(max_rows, n_rows);
        const size_t rows = request.n_rows_of(part.begin, request.n_text, /*is_last=*/true);
        part.is_last = n_tokens + request.n_left() + request.n_nodes() <= room &&
                       n_lanes + lanes <= cache_.n_free_lanes() &&
                       (rows <= free_rows || (n_rows == 0 && rows == request.n_all_rows()));
        // Tokens whose logits are wanted stay together.
        part.n = part.is_last ? request.n_left()
                              : std::min(room - std::min(room, n_tokens), request.n_left() - request.n_rows);
        if (request.wants_output_states && part.begin + part.n > request.states_from) {
            part.n = std::min(part.n, std::max(part.begin, request.states_from) + free_rows - part.begin);
        }
        if (part.begin < request.n_complete) {
            part.is_last = false;
            part.n = std::min(part.n, request.n_complete - part.begin);
        }
        if (part.n == 0 && !part.is_last) {
            return;
        }
        n_tokens += request.n_in_pass();
        n_rows += request.n_rows_of(part.begin, part.begin + part.n, part.is_last);
        n_lanes += part.is_last ? lanes : 0;
        members.push_back(&request);
    };
    const size_t n_batch = room(waiting);
    PassRequest & first = *waiting.front();
    if (!cache_.shares_cells()) {
        // llama.cpp would split other batches. It also splits a batch that skips a slot or is not ordered by slot.
        for (PassRequest * request : waiting) {
            if (request == &first || (is_generating(&first) && is_generating(request))) {
                add(*request, n_batch);
            }
        }
        std::sort(members.begin(), members.end(),
                  [](const PassRequest * a, const PassRequest * b) { return a->slot.id < b->slot.id; });
        return members;
    }
    const auto n_all = [](const PassRequest & request) { return request.n_left() + request.n_nodes(); };
    const auto is_short = [&](const PassRequest & request) { return n_all(request) * waiting.size() <= n_batch; };
    const bool first_is_whole = n_all(first) <= n_batch;
    if (first_is_whole) {
        add(first, n_batch);
    }
    for (PassRequest * request : waiting) {
        if (is_short(*request) && !(request == &first && first_is_whole)) {
            add(*request, first_is_whole ? n_batch : n_batch / 2);
        }
    }
    for (PassRequest * request : waiting) {
        if (!is_short(*request) && !(request == &first && first_is_whole)) {
            add(*request, n_batch);
        }
    }
    return members;
}

void PassScheduler::run(const Pass & pass) {
    if (pass.kind == PassRequest::Kind::logits) {
        compute_logits(pass.members);
    } else {
        decode(pass.members);
    }
}

void PassScheduler::compute_logits(const Requests & requests) {
    std::vector<const HiddenState *> hidden;
    std::vector<std::vector<float> *> logits;
    for (const PassRequest * request : requests) {
        hidden.push_back(request->hidden);
        logits.push_back(request->logits);
    }
    std::exception_ptr error;
    try {
        runner_.compute_logits(hidden, logits);
    } catch (...) {
        error = std::current_exception();
    }
    for (PassRequest * request : requests) {
        request->part.outcome = Outcome::done;
        request->error = error;
    }
}

void PassScheduler::decode(Requests members) {
    while (!members.empty()) {
        const int64_t start = llama_time_us();
        Batch batch;
        PassRunner::Result result = PassRunner::done;
        bool is_incomplete = false;
        try {
            for (PassRequest * member : members) {
                add_to(batch, *member);
            }
            const Rows rows = rows_for(members);
            const PassRunner::Layers layers = layers_for(members);
            is_incomplete = runner_.leaves_out_layers(layers);
            do {
                result = runner_.run(batch, rows, layers);
            } while (result == PassRunner::no_room && cache_.make_room());
        } catch (...) {
            for (PassRequest * member : members) {
                take_back(*member, /*was_begun=*/true);
                member->fail(std::current_exception());
            }
            return;
        }
        if (result == PassRunner::done) {
            const int64_t microseconds = llama_time_us() - start;
            count_pass(members);
            for (PassRequest * member : members) {
                hand_out(*member, members.size(), microseconds);
                if (is_incomplete) {
                    take_back(*member, /*was_begun=*/true);
                }
            }
            return;
        }
        for (PassRequest * member : members) {
            take_back(*member, result == PassRunner::stopped);
        }
        if (result == PassRunner::stopped) {
            return;  // requests that are not cancelled go into the next pass
        }
        give_up_cells(members);
    }
}

// Makes room in the full cache by removing the tokens of one stream, or one request from the pass.
//
// Streams that were opened first go first. The stream that was opened last loses its tokens, and waits until others
// have ended. It then decodes its tokens again, so nothing is lost but time. A request fails only if the cache is too
// small for it alone. A tree fails, too: its caller can decode one path at a time.
void PassScheduler::give_up_cells(Requests & members) {
    const auto n_all = [](const PassRequest & request) { return request.n_text + request.n_nodes(); };
    const auto largest =
        std::max_element(members.begin(), members.end(), [](const PassRequest * a, const PassRequest * b) {
            return std::make_pair(a->n_in_pass(), a->part.begin) < std::make_pair(b->n_in_pass(), b->part.begin);
        });
    const auto last =
        std::max_element(members.begin(), members.end(),
                         [](const PassRequest * a, const PassRequest * b) { return a->slot.opened < b->slot.opened; });
    PassRequest & loser = **last;
    const bool is_too_large = n_all(**largest) > llama_n_ctx_seq(runner_.context());
    if (is_too_large || (*largest)->n_nodes() > 0) {
        (*largest)->fail(std::make_exception_ptr(context_full(**largest)));
        cache_.truncate((*largest)->slot, (*largest)->n_matched);
        members.erase(largest);
    } else if (Slot * other = cache_.slots().last_opened(loser.slot);
               other != nullptr && other->opened > loser.slot.opened) {
        cache_.evict(*other);
    } else if (const size_t n_elsewhere = cache_.n_wanted_elsewhere(loser.slot);
               members.size() > 1 || n_elsewhere > 0) {
        loser.is_suspended = true;
        loser.is_prepared = false;
        loser.n_refused = members.size() > 1 ? SIZE_MAX : n_elsewhere;
        cache_.evict(loser.slot);
        members.erase(last);
    } else {
        loser.fail(std::make_exception_ptr(context_full(loser)));
        cache_.truncate(loser.slot, loser.n_matched);
        members.erase(last);
    }
}

void PassScheduler::count_pass(const Requests & members) {
    ++n_passes_;
    n_sequences_ += static_cast<int64_t>(members.size());
    const double average = sequences_a_pass_.load(std::memory_order_relaxed);
    sequences_a_pass_ = 0.9 * average + 0.1 * static_cast<double>(members.size());
}

void PassScheduler::add_to(Batch & batch, PassRequest & request) {
    PassRequest::Part & part = request.part;
    Slot & slot = request.slot;
    part.first_in_batch = batch.n_tokens();
    part.first_row = batch.n_rows();
    const TreeBatch * tree = part.is_last ? request.tree : nullptr;
    std::vector<llama_seq_id> holders;
    if (tree != nullptr) {
        part.fork = std::make_unique<KvCache::Fork>(cache_, &slot, tree->n_lanes);
        holders = part.fork->lanes();
    }
    holders.push_back(slot.id);
    const size_t n_rows = part.is_last ? request.n_rows : 0;
    for (size_t i = 0; i < part.n; ++i) {
        const size_t at = part.begin + i;
        const bool wants_state = request.wants_output_states && at >= request.states_from;
        batch.add(request.text[at], static_cast<llama_pos>(at), holders, wants_state || i + n_rows >= part.n);
    }
    part.n_text_rows = batch.n_rows() - part.first_row;
    if (tree != nullptr) {
        for (const TreeBatch::Node & node : tree->nodes) {
            const auto lanes = part.fork->lanes().begin();
            batch.add(node.token, static_cast<llama_pos>(request.n_text) + node.depth,
                      {lanes + node.lanes_begin, lanes + node.lanes_end}, node.wants_logits);
        }
    }
    slot.cached.insert(slot.cached.end(), request.text + part.begin, request.text + part.begin + part.n);
}

// The pass may leave out the output head only if no request needs all logits.
Rows PassScheduler::rows_for(const Requests & members) {
    const auto has_rows = [](const PassRequest * member) {
        const PassRequest::Part & part = member->part;
        return part.is_last || member->n_rows_of(part.begin, part.begin + part.n, false) > 0;
    };
    const auto needs_all = [](const PassRequest * member) {
        return member->part.is_last && member->rows == Rows::whole;
    };
    const bool any_row = std::any_of(members.begin(), members.end(), has_rows);
    const bool any_whole = std::any_of(members.begin(), members.end(), needs_all);
    return any_row && !any_whole ? Rows::some : Rows::whole;
}

// The pass may stop after some layer only if no request needs logits or the keys and values of all layers.
PassRunner::Layers PassScheduler::layers_for(const Requests & members) {
    PassRunner::Layers layers;
    layers.stops = true;
    for (const PassRequest * member : members) {
        const PassRequest::Part & part = member->part;
        const bool has_states = !member->layers.empty() && part.begin + part.n > member->states_from;
        // The output of the final norm depends on all layers: after it, only the output head is left out.
        layers.stops =
            layers.stops && has_states && member->n_all_rows() == 0 && (part.is_last || member->wants_output_states);
        if (has_states) {
            layers.wanted.insert(layers.wanted.end(), member->layers.begin(), member->layers.end());
        }
    }
    return layers;
}

void PassScheduler::hand_out(PassRequest & request, size_t n_members, int64_t microseconds) {
    StreamCounts & counts = request.counts;
    PassRequest::Part & part = request.part;
    ++counts.forward_passes;
    counts.prompt_passes += request.reads_prompt ? 1 : 0;
    counts.passes_shared += n_members > 1 ? 1 : 0;
    counts.sequences += static_cast<int64_t>(n_members);
    counts.decode_us += microseconds;
    request.slot.n_revocable =
        std::min(std::max<size_t>(part.n, 1) - 1, static_cast<size_t>(cache_.most_revocable(runner_.n_batch())));
    request.n_reached = std::max(request.n_reached, part.begin + part.n);
    part.outcome = part.is_last ? Outcome::done : Outcome::served;
    try {
        if (request.on_pass) {
            request.on_pass(part.begin, part.begin + part.n);
        }
        hand_out_states(request);
        if (!part.is_last) {
            return;
        }
        hand_out_rows(request);
        part.fork.reset();
        if (request.continues && request.continues()) {
            part.outcome = Outcome::served;
            request.is_prepared = false;
        }
    } catch (...) {
        part.fork.reset();
        request.fail(std::current_exception());
    }
}

void PassScheduler::hand_out_states(PassRequest & request) {
    const PassRequest::Part & part = request.part;
    if (request.layers.empty()) {
        return;
    }
    const size_t first = std::max(part.begin, request.states_from);
    for (size_t at = first; at < part.begin + part.n; ++at) {
        const int32_t place = part.first_in_batch + static_cast<int32_t>(at - part.begin);
        for (const int32_t layer : request.layers) {
            request.on_state(at, layer, runner_.hidden_row(layer, part.first_row + at - first, place));
        }
    }
    request.states_from = std::max(request.states_from, part.begin + part.n);
}

void PassScheduler::hand_out_rows(PassRequest & request) {
    const PassRequest::Part & part = request.part;
    request.counts.bytes_copied += static_cast<int64_t>(request.n_all_rows() * runner_.bytes_of_row());
    size_t row = part.first_row + part.n_text_rows - request.n_rows;
    const int32_t end_of_text = part.first_in_batch + static_cast<int32_t>(part.n);
    for (int32_t place = -static_cast<int32_t>(request.n_rows); place < 0; ++place, ++row) {
        if (request.on_row) {
            request.on_row(place, runner_.take_row(row, end_of_text + place));
        }
    }
    if (request.tree == nullptr) {
        return;
    }
    const std::vector<TreeBatch::Node> & nodes = request.tree->nodes;
    for (int32_t place = 0; place < static_cast<int32_t>(nodes.size()); ++place) {
        if (nodes[static_cast<size_t>(place)].wants_logits) {
            request.on_row(place, runner_.take_row(row++, end_of_text + place));
        }
    }
    if (const int32_t place = request.kept(); place >= 0) {
        const TreeBatch::Node & node = nodes[static_cast<size_t>(place)];
        std::vector<llama_token> path(static_cast<size_t>(node.depth) + 1);
        for (int32_t at = place; at >= 0; at = nodes[static_cast<size_t>(at)].parent) {
            path[static_cast<size_t>(nodes[static_cast<size_t>(at)].depth)] = nodes[static_cast<size_t>(at)].token;
        }
        part.fork->keep(request.slot, part.fork->lanes()[static_cast<size_t>(node.lanes_begin)], path);
    }
}

// Restores the slot to its state before the pass. Parts of the batch that llama.cpp has decoded are dropped.
void PassScheduler::take_back(PassRequest & request, bool was_begun) {
    Slot & slot = request.slot;
    request.part.fork.reset();
    if (was_begun) {
        slot.n_revocable = 0;
        cache_.truncate(slot, request.part.begin);
    } else {
        slot.cached.resize(request.part.begin);
    }
}

ContextFull PassScheduler::context_full(const PassRequest & request) const {
    return ContextFull("no room for " + std::to_string(request.n_in_pass()) + " more tokens after " +
                       std::to_string(request.part.begin) + " (option n_ctx is " +
                       std::to_string(llama_n_ctx_seq(runner_.context())) + ", shared by all open streams)");
}

}  // namespace eliza
