#include "engine/pass/pass_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace eliza {

// Who waits for a pass, or to be alone with the context.
struct PassQueue::Waiter {
    Waiter(PassRequest * wanted, std::atomic<bool> & cancelled_flag) : request(wanted), cancelled(cancelled_flag) {}

    PassRequest * const request;  // nullptr: wants to be alone
    std::atomic<bool> & cancelled;
    std::condition_variable wake;
    std::list<Waiter *>::iterator place;  // in the queue
    bool is_held = false;                 // the leader is at it
    bool is_done = false;
    bool is_telling = false;  // its caller how far it is; it will look again
    std::exception_ptr error;
    int64_t served_us = 0;   // of passes it was in
    size_t n_matched = 0;    // what the cache held when it was prepared
    size_t n_to_decode = 0;  // and what it did not
    float fraction = 0.0f;   // of that, decoded

    bool is_prepared = false;  // touched by the leader alone

    bool is_head() const { return request->hidden != nullptr; }

    // What there is to decode still; of a request that is prepared.
    size_t n_left() const { return is_prepared ? request->n_text - request->slot.cached.size() : 0; }
    size_t n_nodes() const { return request->tree != nullptr ? request->tree->nodes.size() : 0; }
    size_t n_rows() const {
        return request->n_rows + static_cast<size_t>(request->tree != nullptr ? request->tree->n_rows : 0);
    }
};

// A waiter's part of one pass.
struct PassQueue::Member {
    Waiter * waiter;
    size_t begin = 0, n = 0;  // tokens of its text
    bool is_last = false;     // its rows and its tree belong to this pass

    // Of the batch once it is put together.
    int32_t first_in_batch = 0;
    size_t first_row = 0;  // among all of the batch
    std::unique_ptr<KvCache::Fork> fork{};

    enum class Outcome { waits, served, done } outcome = Outcome::waits;

    PassRequest & request() const { return *waiter->request; }
    bool is_head() const { return waiter->is_head(); }
    size_t n_tokens() const { return n + (is_last ? waiter->n_nodes() : 0); }

    void fail(std::exception_ptr error) {
        waiter->error = std::move(error);
        outcome = Outcome::done;
    }
};

PassQueue::PassQueue(PassRunner & runner, KvCache & cache, bool share, int32_t max_rows)
    : runner_(runner),
      cache_(cache),
      share_(share),
      max_rows_(max_rows),
      expected_(static_cast<size_t>(cache.slots().size()), false) {}

// ---- Waiting --------------------------------------------------------------------------------------

void PassQueue::run(PassRequest & request) {
    Waiter me(&request, request.cancelled);
    const int64_t start = llama_time_us();
    std::unique_lock<std::mutex> lock(mutex_);
    me.place = waiting_.insert(waiting_.end(), &me);
    expect(request.slot, false);
    wait_until_done(lock, me);
    request.counts.wait_us += llama_time_us() - start - me.served_us;
    if (me.error) {
        std::rethrow_exception(me.error);
    }
}

void PassQueue::run_alone(std::atomic<bool> & cancelled, const std::function<void()> & use) {
    Waiter me(nullptr, cancelled);
    std::unique_lock<std::mutex> lock(mutex_);
    me.place = waiting_.insert(waiting_.end(), &me);
    wait_until_done(lock, me);
    runner_.clear_stop();
    running_alone_ = &cancelled;
    lock.unlock();
    std::exception_ptr error;
    try {
        use();
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    running_alone_ = nullptr;
    is_led_ = false;
    call_next();
    if (error) {
        std::rethrow_exception(error);
    }
}

// Leads the passes that are needed until then, if nobody else does. Who wanted to be alone then is.
void PassQueue::wait_until_done(std::unique_lock<std::mutex> & lock, Waiter & me) {
    float told = 0.0f;
    const auto tell_progress = [&] {
        if (me.fraction <= told || !me.request->progress) {
            return false;
        }
        told = me.fraction;
        me.is_telling = true;
        call_next();  // others need not wait for that
        lock.unlock();
        me.request->progress(told);
        lock.lock();
        me.is_telling = false;
        return true;
    };
    while (!me.is_done) {
        if (!me.is_held && me.cancelled.exchange(false)) {
            remove(me);
            call_next();
            throw Error(ELIZA_ERR_CANCELLED, "cancelled");
        }
        if (tell_progress()) {
            continue;
        }
        if (!may_lead(me)) {
            call_next();
            me.wake.wait(lock);
        } else if (me.request == nullptr) {
            is_led_ = true;
            remove(me);
            return;
        } else {
            lead(lock, me);
        }
    }
    tell_progress();
    call_next();
}

// Whoever is next in the queue, or anyone if the next needs a pass.
bool PassQueue::may_lead(const Waiter & waiter) const {
    return !is_led_ &&
           (waiting_.front() == &waiter || (waiter.request != nullptr && waiting_.front()->request != nullptr));
}

void PassQueue::call_next() {
    if (is_led_) {
        return;
    }
    for (Waiter * waiter : waiting_) {
        if (!waiter->is_telling) {
            waiter->wake.notify_one();
            return;
        }
    }
}

void PassQueue::remove(Waiter & waiter) { waiting_.erase(waiter.place); }

void PassQueue::expect(const Slot & slot, bool expected) {
    const auto i = static_cast<size_t>(slot.id);
    if (expected_[i] != expected) {
        expected_[i] = expected;
        n_expected_ += expected ? 1 : -1;
        if (n_expected_ == 0) {
            companion_came_.notify_one();
        }
    }
}

void PassQueue::leave(const Slot & slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect(slot, false);
}

void PassQueue::wake_cancelled() {
    // Under the lock, or one who has just looked and not yet slept would miss it.
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_if_cancelled();
    for (Waiter * waiter : waiting_) {
        if (waiter->cancelled) {
            waiter->wake.notify_one();
        }
    }
}

// Stops the pass that runs where nobody wants it any more, or most of it: the others' tokens are then decoded
// again, without those that are cancelled. A recurrent state would be lost, so there all must be.
void PassQueue::stop_if_cancelled() {
    if (running_alone_ != nullptr && *running_alone_) {
        runner_.stop();
    }
    if (running_ == nullptr) {
        return;
    }
    size_t n_tokens = 0, n_cancelled = 0, n_members_left = 0;
    for (const Member & member : *running_) {
        const bool is_cancelled = member.waiter->cancelled;
        n_tokens += member.n_tokens();
        n_cancelled += is_cancelled ? member.n_tokens() : 0;
        n_members_left += is_cancelled ? 0 : 1;
    }
    if (n_members_left == 0 || (2 * n_cancelled > n_tokens && !runner_.model().is_recurrent())) {
        runner_.stop();
    }
}

// ---- Leading --------------------------------------------------------------------------------------

void PassQueue::lead(std::unique_lock<std::mutex> & lock, Waiter & me) {
    is_led_ = true;
    wait_for_companions(lock);
    const int64_t start = llama_time_us();
    std::vector<Waiter *> candidates;
    std::vector<Member> members;
    try {
        candidates = hold_candidates();
        lock.unlock();
        for (Waiter * waiter : candidates) {
            prepare(*waiter);
        }
        members = select(candidates);
        lock.lock();
        runner_.clear_stop();
        running_ = &members;
        stop_if_cancelled();
        lock.unlock();
        compute_heads(members);
        decode(members);
        lock.lock();
    } catch (...) {  // no memory to put a pass together
        if (!lock.owns_lock()) {
            lock.lock();
        }
        me.error = std::current_exception();
        me.is_done = true;
        remove(me);
        members.clear();
    }
    running_ = nullptr;
    last_pass_us_ = llama_time_us() - start;
    for (const Member & member : members) {
        Waiter & waiter = *member.waiter;
        waiter.served_us += last_pass_us_;
        if (member.outcome == Member::Outcome::done) {
            waiter.is_done = true;
            waiter.fraction = waiter.error ? 0.0f : 1.0f;
            remove(waiter);
            expect(waiter.request->slot, true);
        } else if (member.outcome == Member::Outcome::served) {
            waiter.fraction = 1.0f - static_cast<float>(waiter.n_left()) / static_cast<float>(waiter.n_to_decode);
            // The others first.
            waiting_.splice(waiting_.end(), waiting_, waiter.place);
        }
    }
    for (Waiter * waiter : candidates) {
        let_go(*waiter);
    }
    is_led_ = false;
}

// Those who shared the last pass choose their next tokens now: without a moment's wait, two would take turns for
// ever. Bounded by a small part of a pass; who has not come until then is not waited for again.
void PassQueue::wait_for_companions(std::unique_lock<std::mutex> & lock) {
    constexpr int64_t part_of_a_pass = 20;
    if (share_ && n_expected_ > 0) {
        const auto most = std::chrono::microseconds(last_pass_us_ / part_of_a_pass);
        companion_came_.wait_for(lock, most, [&] { return n_expected_ == 0; });
    }
    std::fill(expected_.begin(), expected_.end(), false);
    n_expected_ = 0;
}

// Those whose requests may go through the model together now.
std::vector<PassQueue::Waiter *> PassQueue::hold_candidates() {
    std::vector<Waiter *> candidates;
    for (Waiter * waiter : waiting_) {
        if (waiter->cancelled) {
            continue;
        }
        const bool is_alone = waiter->request == nullptr || waiter->request->alone || !share_;
        if (is_alone && (waiter->request == nullptr || !candidates.empty())) {
            break;  // those before it first
        }
        candidates.push_back(waiter);
        if (is_alone) {
            break;
        }
    }
    for (Waiter * waiter : candidates) {
        waiter->is_held = true;
    }
    return candidates;
}

void PassQueue::let_go(Waiter & waiter) {
    waiter.is_held = false;
    if (waiter.is_done || waiter.cancelled || waiter.request->progress) {
        waiter.wake.notify_one();
    }
}

// Finds what the cache holds of the text. It holds keys and values, not logits: tokens whose rows are wanted are
// decoded in any case.
void PassQueue::prepare(Waiter & waiter) {
    PassRequest & request = *waiter.request;
    if (waiter.is_prepared || waiter.is_head()) {
        return;
    }
    const size_t most = request.n_text - request.n_rows;
    const size_t n_before = std::min(request.n_known, request.slot.cached.size());
    const size_t n =
        n_before < most ? cache_.match(request.slot, request.text, most) : cache_.truncate(request.slot, most);
    if (const size_t known = std::max(n_before, request.appended_from); n > known) {
        request.counts.tokens_reused += static_cast<int64_t>(n - known);
    }
    waiter.is_prepared = true;
    waiter.n_matched = request.slot.cached.size();
    waiter.n_to_decode = waiter.n_left();
}

// Who goes into the next pass, with how many tokens: all that need no more than their share of a batch, then the
// others in their order, as far as there is room. If whoever has waited longest is one of the others, half of the
// batch is his.
std::vector<PassQueue::Member> PassQueue::select(const std::vector<Waiter *> & candidates) {
    const auto n_batch = static_cast<size_t>(runner_.n_batch());
    size_t n_tokens = 0, n_rows = 0;
    int32_t n_lanes = 0;
    std::vector<Member> members;
    const auto add = [&](Waiter & waiter, size_t room) {
        Member member{&waiter};
        if (!member.is_head()) {
            member.begin = waiter.request->slot.cached.size();
            const size_t n_all = waiter.n_left() + waiter.n_nodes();
            const int32_t lanes = waiter.request->tree != nullptr ? waiter.request->tree->n_lanes : 0;
            member.is_last = n_tokens + n_all <= room && n_lanes + lanes <= cache_.n_free_lanes() &&
                             (n_rows == 0 || n_rows + waiter.n_rows() <= static_cast<size_t>(max_rows_));
            // The tokens whose rows are wanted stay together.
            member.n = member.is_last
                           ? waiter.n_left()
                           : std::min(room - std::min(room, n_tokens), waiter.n_left() - waiter.request->n_rows);
            if (member.n == 0 && !member.is_last) {
                return;
            }
            n_tokens += member.n_tokens();
            n_rows += member.is_last ? waiter.n_rows() : 0;
            n_lanes += member.is_last ? lanes : 0;
        }
        members.push_back(std::move(member));
    };
    if (candidates.empty()) {
        return members;
    }
    Waiter & first = *candidates.front();
    if (runner_.model().is_recurrent()) {
        // llama.cpp cuts a batch whose sequences are not of one length, reads all weights for every part, and leaves
        // hidden states in the order of the parts: single tokens go together, in the order of slots, and nothing else.
        const auto is_single_token = [](const Waiter & waiter) {
            return !waiter.is_head() && waiter.n_left() == 1 && !waiter.request->slot.cached.empty();
        };
        for (Waiter * waiter : candidates) {
            if (waiter == &first || waiter->is_head() || (is_single_token(first) && is_single_token(*waiter))) {
                add(*waiter, n_batch);
            }
        }
        std::sort(members.begin(), members.end(),
                  [](const Member & a, const Member & b) { return a.request().slot.id < b.request().slot.id; });
        return members;
    }
    const auto is_short = [&](const Waiter & waiter) {
        return waiter.is_head() || (waiter.n_left() + waiter.n_nodes()) * candidates.size() <= n_batch;
    };
    for (Waiter * waiter : candidates) {
        if (is_short(*waiter)) {
            add(*waiter, is_short(first) ? n_batch : n_batch / 2);
        }
    }
    for (Waiter * waiter : candidates) {
        if (!is_short(*waiter)) {
            add(*waiter, n_batch);
        }
    }
    return members;
}

// ---- Running --------------------------------------------------------------------------------------

void PassQueue::compute_heads(std::vector<Member> & members) {
    std::vector<Member *> heads;
    std::vector<const HiddenState *> hidden;
    std::vector<std::vector<float> *> logits;
    for (Member & member : members) {
        if (member.is_head()) {
            heads.push_back(&member);
            hidden.push_back(member.request().hidden);
            logits.push_back(member.request().logits);
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
        head->waiter->error = error;
    }
}

void PassQueue::decode(std::vector<Member> & all) {
    std::vector<Member *> members;
    for (Member & member : all) {
        if (!member.is_head()) {
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
        cache_.truncate((*fills)->request().slot, (*fills)->waiter->n_matched);
        members.erase(fills);
    }
}

void PassQueue::put_into(Batch & batch, Member & member) {
    PassRequest & request = member.request();
    Slot & slot = request.slot;
    member.first_in_batch = batch.n_tokens();
    member.first_row = batch.n_rows();
    const TreeBatch * tree = member.is_last ? request.tree : nullptr;
    std::vector<llama_seq_id> holders;
    if (tree != nullptr) {
        member.fork = std::make_unique<KvCache::Fork>(cache_, slot, tree->n_lanes);
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
PassRunner::Wanted PassQueue::wanted_by(const std::vector<Member *> & members) const {
    PassRunner::Wanted wanted;
    bool any_whole = false, any_row = false, all_gather = true;
    for (const Member * member : members) {
        const PassRequest & request = member->request();
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

void PassQueue::hand_out(Member & member, size_t n_members, int64_t microseconds) {
    PassRequest & request = member.request();
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
        counts.bytes_copied += static_cast<int64_t>(member.waiter->n_rows() * runner_.bytes_of_row());
        size_t row = member.first_row;
        const auto n_text = static_cast<int32_t>(member.n);
        for (int32_t place = -static_cast<int32_t>(request.n_rows); place < 0; ++place) {
            request.on_row(place, runner_.row(row++, member.first_in_batch + n_text + place));
        }
        if (request.tree == nullptr) {
            return;
        }
        const std::vector<TreeBatch::Node> & nodes = request.tree->nodes;
        for (int32_t place = 0; place < static_cast<int32_t>(nodes.size()); ++place) {
            if (nodes[static_cast<size_t>(place)].wants_logits) {
                request.on_row(place, runner_.row(row++, member.first_in_batch + n_text + place));
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
void PassQueue::take_back(Member & member, bool was_begun) {
    Slot & slot = member.request().slot;
    member.fork.reset();
    if (was_begun) {
        slot.n_revocable = 0;
        cache_.truncate(slot, member.begin);
    } else {
        slot.cached.resize(member.begin);
    }
}

ContextFull PassQueue::context_full(const Member & member) const {
    return ContextFull(ELIZA_ERR_FFI_FAULT, "context full: no room for " + std::to_string(member.n_tokens()) +
                                                " more tokens after " + std::to_string(member.begin) +
                                                " (option n_ctx is " + std::to_string(llama_n_ctx(runner_.context())) +
                                                ", shared by all open streams)");
}

}  // namespace eliza
