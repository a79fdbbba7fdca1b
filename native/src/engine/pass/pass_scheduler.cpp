#include "engine/pass/pass_scheduler.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "engine/pass/batch.h"

namespace eliza {

// Finds what the cache holds of the text, for each pass anew: others may have decoded the same. It holds keys and
// values, not logits: tokens whose rows are wanted are decoded in any case.
void PassScheduler::prepare(Ticket & ticket) {
    PassRequest & request = ticket.request;
    if (ticket.is_head()) {
        return;
    }
    const size_t most = request.n_text - request.n_rows;
    const size_t n_held = request.slot.cached.size();
    const size_t n_before = ticket.is_prepared ? n_held : std::min(request.n_known, n_held);
    const size_t n =
        n_before < most ? cache_.take_prefix(request.slot, request.text, most) : cache_.truncate(request.slot, most);
    if (const size_t known = std::max(n_before, request.appended_from); n > known) {
        request.counts.tokens_reused += static_cast<int64_t>(n - known);
    }
    if (!ticket.is_prepared) {
        ticket.is_prepared = true;
        ticket.n_matched = n;
        ticket.n_to_decode = ticket.n_left();
    }
}

// True where a good part of what the ticket wants is decoded for another one in this pass: after it, the cache holds
// that for both.
bool PassScheduler::is_better_held_back(const Ticket & ticket, const std::vector<Member> & members) const {
    constexpr size_t worth_a_pass = 32;  // tokens
    if (runner_.model().is_recurrent() || ticket.is_head()) {
        return false;
    }
    const PassRequest & request = ticket.request;
    const size_t n_held = request.slot.cached.size();
    return std::any_of(members.begin(), members.end(), [&](const Member & member) {
        if (member.ticket->is_head()) {
            return false;
        }
        const size_t end = std::min(member.begin + member.n, request.n_text - request.n_rows);
        return end >= n_held + worth_a_pass &&
               std::equal(request.text, request.text + end, member.ticket->request.text);
    });
}

// How many tokens the next pass may have. Where somebody wants to be told how far a prompt is, about as many as take
// half a second.
size_t PassScheduler::room(const std::vector<Ticket *> & waiting) const {
    const auto n_batch = static_cast<size_t>(runner_.n_batch());
    const bool is_watched = std::any_of(waiting.begin(), waiting.end(),
                                        [](const Ticket * ticket) { return ticket->request.progress != nullptr; });
    if (!is_watched || !goes_by_time_) {
        return n_batch;
    }
    size_t most = std::max(piece_, 2 * waiting.size());  // or single tokens would wait for the prompt's end
    for (const Ticket * ticket : waiting) {
        most = std::max(most, ticket->n_rows() + ticket->n_nodes());  // which stay together
    }
    return std::min(most, n_batch);
}

// What the pieces of watched prompts are to be, by the last two passes of different lengths: what a pass costs whatever
// its length, reading the weights, say, must not become most of it.
void PassScheduler::learn_piece(size_t n_tokens, double microseconds) {
    constexpr double goal = 400e3;
    const size_t n_before = std::exchange(n_last_, n_tokens);
    const double us_before = std::exchange(us_last_, microseconds);
    if (n_before == n_tokens) {
        return;
    }
    const double more = static_cast<double>(n_tokens) - static_cast<double>(n_before);
    const double a_token = n_before == 0 ? 0.0 : (microseconds - us_before) / more;
    size_t wanted = 2 * n_tokens;  // where nothing shows yet that a longer one would take longer
    if (a_token > 0.0) {
        const double fixed = std::max(0.0, microseconds - a_token * static_cast<double>(n_tokens));
        const double tokens = std::max(goal - fixed, fixed) / a_token;
        wanted = static_cast<size_t>(std::min(tokens, static_cast<double>(wanted)));
    }
    piece_ = std::clamp(std::max(wanted, n_tokens / 2), first_piece,
                        std::max(first_piece, static_cast<size_t>(runner_.n_batch())));
}

// Whoever has waited longest, if there is room for all of it; then all that need no more than their share of a batch;
// then the others in their order, as far as there is room. Of a text longer than a batch, half a batch goes at least.
std::vector<PassScheduler::Member> PassScheduler::select(const std::vector<Ticket *> & waiting) {
    std::vector<Member> members;
    if (waiting.empty()) {
        return members;
    }
    const size_t n_batch = room(waiting);
    for (Ticket * ticket : waiting) {
        prepare(*ticket);
    }
    size_t n_tokens = 0, n_rows = 0;
    int32_t n_lanes = 0;
    const auto add = [&](Ticket & ticket, size_t room) {
        if (is_better_held_back(ticket, members)) {
            return;
        }
        Member member{&ticket};
        if (!member.ticket->is_head()) {
            member.begin = ticket.request.slot.cached.size();
            const size_t n_needed = ticket.n_left() + ticket.n_nodes();
            const int32_t lanes = ticket.request.tree != nullptr ? ticket.request.tree->n_lanes : 0;
            member.is_last = n_tokens + n_needed <= room && n_lanes + lanes <= cache_.n_free_lanes() &&
                             (n_rows == 0 || n_rows + ticket.n_rows() <= static_cast<size_t>(max_rows_));
            // The tokens whose rows are wanted stay together.
            member.n = member.is_last
                           ? ticket.n_left()
                           : std::min(room - std::min(room, n_tokens), ticket.n_left() - ticket.request.n_rows);
            if (member.n == 0 && !member.is_last) {
                return;
            }
            n_tokens += member.n_tokens();
            n_rows += member.is_last ? ticket.n_rows() : 0;
            n_lanes += member.is_last ? lanes : 0;
        }
        members.push_back(std::move(member));
    };
    Ticket & first = *waiting.front();
    if (runner_.model().is_recurrent()) {
        // llama.cpp cuts a batch whose sequences are not of one length, reads all weights for every part, and leaves
        // hidden states in the order of the parts: single tokens go together, in the order of slots, and nothing else.
        const auto is_single_token = [](const Ticket & ticket) {
            return !ticket.is_head() && ticket.n_left() == 1 && !ticket.request.slot.cached.empty();
        };
        for (Ticket * ticket : waiting) {
            if (ticket == &first || ticket->is_head() || (is_single_token(first) && is_single_token(*ticket))) {
                add(*ticket, n_batch);
            }
        }
        std::sort(members.begin(), members.end(), [](const Member & a, const Member & b) {
            return a.ticket->request.slot.id < b.ticket->request.slot.id;
        });
        return members;
    }
    const auto n_all = [](const Ticket & ticket) { return ticket.n_left() + ticket.n_nodes(); };
    const auto is_short = [&](const Ticket & ticket) { return n_all(ticket) * waiting.size() <= n_batch; };
    const bool first_is_whole = n_all(first) <= n_batch;
    if (first_is_whole) {
        add(first, n_batch);
    }
    for (Ticket * ticket : waiting) {
        if (is_short(*ticket) && !(ticket == &first && first_is_whole)) {
            add(*ticket, first_is_whole ? n_batch : n_batch / 2);
        }
    }
    for (Ticket * ticket : waiting) {
        if (!is_short(*ticket) && !(ticket == &first && first_is_whole)) {
            add(*ticket, n_batch);
        }
    }
    return members;
}

void PassScheduler::run(std::vector<Member> & members) {
    cache_.count_pass(std::accumulate(members.begin(), members.end(), size_t(0),
                                      [](size_t n, const Member & member) { return n + member.n_tokens(); }));
    compute_heads(members);
    decode(members);
}

void PassScheduler::compute_heads(std::vector<Member> & members) {
    std::vector<Member *> heads;
    std::vector<const HiddenState *> hidden;
    std::vector<std::vector<float> *> logits;
    for (Member & member : members) {
        if (member.ticket->is_head()) {
            heads.push_back(&member);
            hidden.push_back(member.ticket->request.hidden);
            logits.push_back(member.ticket->request.logits);
        }
    }
    if (heads.empty()) {
        return;
    }
    std::exception_ptr error;
    try {
        runner_.compute_logits(hidden, logits);
    } catch (...) {
        error = std::current_exception();
    }
    for (Member * head : heads) {
        head->outcome = Member::Outcome::done;
        head->ticket->error = error;
    }
}

void PassScheduler::decode(std::vector<Member> & all) {
    std::vector<Member *> members;
    for (Member & member : all) {
        if (!member.ticket->is_head()) {
            members.push_back(&member);
        }
    }
    while (!members.empty()) {
        const int64_t start = llama_time_us();
        Batch batch;
        PassRunner::Result result = PassRunner::done;
        try {
            for (Member * member : members) {
                put_into(batch, *member);
            }
            const PassRunner::Wanted wanted = wanted_by(members);
            do {
                result = runner_.run(batch, wanted);
            } while (result == PassRunner::no_room && cache_.make_room());
        } catch (...) {
            for (Member * member : members) {
                take_back(*member, /*was_begun=*/true);
                member->fail(std::current_exception());
            }
            return;
        }
        if (result == PassRunner::done) {
            const int64_t microseconds = llama_time_us() - start;
            if (std::any_of(members.begin(), members.end(),
                            [](const Member * member) { return member->n >= first_piece / 2; })) {
                learn_piece(static_cast<size_t>(batch.n_tokens()), static_cast<double>(microseconds));
            }
            for (Member * member : members) {
                hand_out(*member, members.size(), microseconds);
            }
            ++n_passes_;
            n_sequences_ += static_cast<int64_t>(members.size());
            const double of_late = sequences_a_pass_.load(std::memory_order_relaxed);
            sequences_a_pass_ = 0.9 * of_late + 0.1 * static_cast<double>(members.size());
            return;
        }
        for (Member * member : members) {
            take_back(*member, result == PassRunner::stopped);
        }
        if (result == PassRunner::stopped) {
            return;  // who is not cancelled goes into the next pass
        }
        // Whoever fills the context: who wants the most, or has the most. What the request had decoded makes room
        // for the others.
        const auto fills = std::max_element(members.begin(), members.end(), [](const Member * a, const Member * b) {
            return std::make_pair(a->n_tokens(), a->begin) < std::make_pair(b->n_tokens(), b->begin);
        });
        (*fills)->fail(std::make_exception_ptr(context_full(**fills)));
        cache_.truncate((*fills)->ticket->request.slot, (*fills)->ticket->n_matched);
        members.erase(fills);
    }
}

void PassScheduler::put_into(Batch & batch, Member & member) {
    PassRequest & request = member.ticket->request;
    Slot & slot = request.slot;
    member.first_in_batch = batch.n_tokens();
    member.first_row = batch.n_rows();
    const TreeBatch * tree = member.is_last ? request.tree : nullptr;
    std::vector<llama_seq_id> holders;
    if (tree != nullptr) {
        member.fork = std::make_unique<KvCache::Fork>(cache_, &slot, tree->n_lanes);
        holders = member.fork->lanes();
    }
    holders.push_back(slot.id);
    const size_t n_rows = member.is_last ? request.n_rows : 0;
    for (size_t i = 0; i < member.n; ++i) {
        const size_t at = member.begin + i;
        batch.add(request.text[at], static_cast<llama_pos>(at), holders, i + n_rows >= member.n);
    }
    if (tree != nullptr) {
        for (const TreeBatch::Node & node : tree->nodes) {
            const auto lanes = member.fork->lanes().begin();
            batch.add(node.token, static_cast<llama_pos>(request.n_text) + node.depth,
                      {lanes + node.lanes_begin, lanes + node.lanes_end}, node.wants_logits);
        }
    }
    slot.cached.insert(slot.cached.end(), request.text + member.begin, request.text + member.begin + member.n);
}

// The head is left out, or logits gathered, only where that does for all.
PassRunner::Wanted PassScheduler::wanted_by(const std::vector<Member *> & members) const {
    PassRunner::Wanted wanted;
    bool any_whole = false, any_row = false, all_gather = true;
    for (const Member * member : members) {
        const PassRequest & request = member->ticket->request;
        if (!member->is_last) {
            continue;
        }
        any_row = true;
        any_whole = any_whole || request.rows == Rows::whole;
        const bool gathers = request.tree == nullptr && request.n_rows == 1 && !request.gather.empty() &&
                             runner_.can_gather(request.gather.size);
        all_gather = all_gather && gathers;
        if (gathers) {
            wanted.gather.emplace_back(request.slot.id, request.gather);
        }
    }
    if (!any_row || !all_gather) {
        wanted.gather.clear();
    }
    wanted.whole = !any_row || any_whole;
    return wanted;
}

void PassScheduler::hand_out(Member & member, size_t n_members, int64_t microseconds) {
    PassRequest & request = member.ticket->request;
    PassCounts & counts = request.counts;
    ++counts.passes;
    counts.passes_shared += n_members > 1 ? 1 : 0;
    counts.sequences += static_cast<int64_t>(n_members);
    counts.pass_us += microseconds;
    member.outcome = member.is_last ? Member::Outcome::done : Member::Outcome::served;
    request.slot.n_revocable =
        std::min(std::max<size_t>(member.n, 1) - 1, static_cast<size_t>(cache_.most_revocable(runner_.n_batch())));
    try {
        if (request.on_pass) {
            request.on_pass(member.begin, member.begin + member.n);
        }
        if (!member.is_last) {
            return;
        }
        counts.bytes_copied += static_cast<int64_t>(member.ticket->n_rows() * runner_.bytes_of_row());
        size_t row = member.first_row;
        const auto n_text = static_cast<int32_t>(member.n);
        for (int32_t place = -static_cast<int32_t>(request.n_rows); place < 0; ++place) {
            request.on_row(place, runner_.take_row(row++, member.first_in_batch + n_text + place));
        }
        if (request.tree == nullptr) {
            return;
        }
        const std::vector<TreeBatch::Node> & nodes = request.tree->nodes;
        for (int32_t place = 0; place < static_cast<int32_t>(nodes.size()); ++place) {
            if (nodes[static_cast<size_t>(place)].wants_logits) {
                request.on_row(place, runner_.take_row(row++, member.first_in_batch + n_text + place));
            }
        }
        if (const int32_t place = request.kept(); place >= 0) {
            const TreeBatch::Node & node = nodes[static_cast<size_t>(place)];
            std::vector<llama_token> path(static_cast<size_t>(node.depth) + 1);
            for (int32_t at = place; at >= 0; at = nodes[static_cast<size_t>(at)].parent) {
                path[static_cast<size_t>(nodes[static_cast<size_t>(at)].depth)] = nodes[static_cast<size_t>(at)].token;
            }
            member.fork->keep(request.slot, member.fork->lanes()[static_cast<size_t>(node.lanes_begin)], path);
        }
        member.fork.reset();
    } catch (...) {
        member.fork.reset();
        member.fail(std::current_exception());
    }
}

// The slot is as it was before the pass. What llama.cpp had finished of a pass that it began is dropped.
void PassScheduler::take_back(Member & member, bool was_begun) {
    Slot & slot = member.ticket->request.slot;
    member.fork.reset();
    if (was_begun) {
        slot.n_revocable = 0;
        cache_.truncate(slot, member.begin);
    } else {
        slot.cached.resize(member.begin);
    }
}

ContextFull PassScheduler::context_full(const Member & member) const {
    return ContextFull("no room for " + std::to_string(member.n_tokens()) + " more tokens after " +
                       std::to_string(member.begin) + " (option n_ctx is " +
                       std::to_string(llama_n_ctx(runner_.context())) + ", shared by all open streams)");
}

}  // namespace eliza
