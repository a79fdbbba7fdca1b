#include "engine/cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "engine/model/rpc_connections.h"
#include "error.h"
#include "llama-context.h"
#include "log.h"

namespace eliza {
namespace {

size_t length_shared(const std::vector<llama_token> & held, const llama_token * text, size_t most) {
    if (held.size() >= most && std::equal(text, text + most, held.begin())) {  // the usual case, in one memcmp
        return most;
    }
    const auto end = std::mismatch(text, text + most, held.begin(), held.end());
    return static_cast<size_t>(end.first - text);
}

// Parking pays only for shared cells on the CPU. A recurrent state has the same size for every slot, and is read by its
// own slot only. On a device, attention is fast and copying to the host and back is slow.
bool is_worth_parking(const Model & model) { return !model.is_recurrent() && !model.is_offloaded(); }

}  // namespace

ggml_type kv_type_from_name(const std::string & option, const std::string & name) {
    const std::vector<ggml_type> types = {GGML_TYPE_F32,    GGML_TYPE_F16,  GGML_TYPE_BF16,
                                          GGML_TYPE_Q8_0,   GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                                          GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1};
    std::string known;
    for (const ggml_type type : types) {
        if (name == ggml_type_name(type)) {
            return type;
        }
        known += (known.empty() ? "" : ", ") + std::string(ggml_type_name(type));
    }
    throw invalid_argument(option + ": expected one of " + known + ", got \"" + name + "\"");
}

KvCache::KvCache(const Model & model, llama_context * context, KvTypes types, Sequences sequences, bool parks)
    : model_(model),
      context_(context),
      types_(types),
      parks_(parks && is_worth_parking(model)),
      slots_(sequences.n_slots, sequences.n_kept) {
    for (int32_t lane = sequences.n_all(); lane-- > sequences.n_slots + sequences.n_kept;) {
        free_lanes_.push_back(lane);
    }
}

std::string KvCache::describe() const {
    return std::string(ggml_type_name(types_.k)) + "/" + ggml_type_name(types_.v) + " llama.cpp " +
           ELIZA_LLAMA_CPP_COMMIT;
}

size_t KvCache::take_prefix(Slot & slot, const llama_token * text, size_t most) {
    const size_t n_common = length_shared(slot.cached, text, most);
    if (n_common < slot.cached.size()) {
        keep_end(slot, n_common);
    }
    const size_t own = truncate(slot, n_common);
    if (own == most || model_.is_recurrent()) {
        return own;  // A recurrent model has a state instead of cells, and no part of a state can be shared.
    }
    Slot * donor = nullptr;
    size_t longest = own;
    for (Slot & other : slots_.all()) {
        const size_t shared = length_shared(other.cached, text, most);
        if (shared > longest && llama_memory_seq_pos_min(memory(), other.id) <= static_cast<llama_pos>(own)) {
            longest = shared;
            donor = &other;
        }
    }
    if (unpark(slot, text, most, longest)) {
        return take_prefix(slot, text, most);
    }
    if (donor == nullptr) {
        return own;
    }
    // The cells are shared, not copied.
    slot.cached.reserve(longest);  // first, because it can fail
    llama_memory_seq_cp(memory(), donor->id, slot.id, static_cast<llama_pos>(own), static_cast<llama_pos>(longest));
    slot.cached.insert(slot.cached.end(), text + own, text + longest);
    slot.n_shared = longest;
    if (slots_.is_kept_text(*donor) && longest == donor->cached.size()) {
        truncate(*donor, 0);  // the slot holds all of it
    } else {
        donor->n_shared = std::max(donor->n_shared, longest);
        slots_.touch(*donor);
    }
    return longest;
}

size_t KvCache::truncate(Slot & slot, size_t n) {
    if (slot.cached.size() <= n) {
        return slot.cached.size();
    }
    // llama.cpp does not know which snapshots belong to the last pass.
    const bool is_possible = !model_.is_recurrent() || slot.cached.size() - n <= slot.n_revocable;
    if (!is_possible || !llama_memory_seq_rm(memory(), slot.id, static_cast<llama_pos>(n), -1) ||
        !holds_window_of(slot, n)) {
        llama_memory_seq_rm(memory(), slot.id, -1, -1);
        n = 0;
    }
    slot.cached.resize(n);
    slot.n_shared = std::min(slot.n_shared, n);
    slot.n_revocable = 0;
    return n;
}

// ---- Kept texts -----------------------------------------------------------------------------------

// Whether another text begins with the slot's first n tokens.
bool KvCache::holds_elsewhere(const Slot & slot, size_t n) const {
    return std::any_of(slots_.all().begin(), slots_.all().end(), [&](const Slot & other) {
        return &other != &slot && length_shared(other.cached, slot.cached.data(), n) == n;
    });
}

// Keeps the text of a slot that is about to lose all but its first n_left tokens, which another text shares.
void KvCache::keep_end(Slot & slot, size_t n_left) {
    constexpr size_t worth_keeping = 32;  // tokens; streams often take back a few
    slot.n_shared = std::max(slot.n_shared, n_left);
    const bool has_texts = slots_.size() < static_cast<int32_t>(slots_.all().size());
    if (!has_texts || slot.cached.size() < n_left + worth_keeping || holds_elsewhere(slot, slot.cached.size())) {
        return;
    }
    const auto is_empty = [](const Slot & text) { return text.cached.empty(); };
    const auto is_any = [](const Slot &) { return true; };
    Slot * text = slots_.least_recently_used_text(is_empty);
    for (; text == nullptr; text = slots_.least_recently_used_text(is_empty)) {
        if (!drop_end()) {
            evict(*slots_.least_recently_used_text(is_any));
        }
    }
    text->cached = slot.cached;  // first, because it can fail
    llama_memory_seq_cp(memory(), slot.id, text->id, -1, -1);
    text->n_shared = slot.n_shared;
    slots_.touch(*text);
}

// Removes the end of the least recently used kept text that has one: the tokens that no other text has begun with.
// Returns false if there is none.
bool KvCache::drop_end() {
    Slot * text = slots_.least_recently_used_text([](const Slot & kept) { return kept.cached.size() > kept.n_shared; });
    if (text == nullptr) {
        return false;
    }
    truncate(*text, holds_elsewhere(*text, text->n_shared) ? 0 : text->n_shared);
    return true;
}

void KvCache::clear() {
    for (Slot & slot : slots_.all()) {
        truncate(slot, 0);
    }
}

// llama.cpp overwrites cells that have left a sliding window, but still allows removing the cells after them.
bool KvCache::holds_window_of(const Slot & slot, size_t n) const {
    const auto n_swa = static_cast<size_t>(llama_model_n_swa(model_.get()));
    if (n == 0 || n_swa == 0) {
        return true;
    }
    const llama_pos oldest = llama_memory_seq_pos_min(memory(), slot.id);
    return oldest >= 0 && static_cast<size_t>(oldest) <= n - std::min(n, n_swa);
}

bool KvCache::make_room() {
    if (drop_end()) {
        return true;
    }
    Slot * slot = slots_.least_recently_used();
    if (slot == nullptr) {
        return false;
    }
    if (slot->n_wanted > 0) {
        truncate(*slot, slot->n_wanted);
    } else {
        evict(*slot);
    }
    return true;
}

void KvCache::evict(Slot & slot) {
    if (!parks_ || slot.cached.empty() || !park(slot)) {
        truncate(slot, 0);
    }
}

size_t KvCache::n_needed_cells(const Slot & slot, const llama_token * text, size_t n) const {
    using Text = std::pair<const llama_token *, const llama_token *>;  // begin and end
    std::vector<Text> texts{{text, text + n}};
    for (const Slot & other : slots_.all()) {
        if (&other != &slot) {
            const llama_token * begin = other.cached.data();
            texts.emplace_back(begin, begin + std::min<size_t>(other.cached.size(), other.n_wanted));
        }
    }
    std::sort(texts.begin(), texts.end(), [](const Text & a, const Text & b) {
        return std::lexicographical_compare(a.first, a.second, b.first, b.second);
    });
    // In this order, what a text shares with any text before it, it shares with the text just before it.
    size_t n_cells = 0;
    Text before{};
    for (const Text & each : texts) {
        const auto shared = std::mismatch(each.first, each.second, before.first, before.second).first;
        n_cells += static_cast<size_t>(each.second - shared);
        before = each;
    }
    return n_cells;
}

size_t KvCache::n_wanted_elsewhere(const Slot & slot) const {
    size_t n_cells = 0;
    for (const Slot & other : slots_.all()) {
        n_cells += &other != &slot ? std::min<size_t>(other.cached.size(), other.n_wanted) : 0;
    }
    return n_cells;
}

// ---- Parking --------------------------------------------------------------------------------------

// Returns false if there is not enough memory; the slot is then unchanged.
bool KvCache::park(Slot & slot) {
    try {
        slot.parked = {slot.cached, copy_state(slot)};
    } catch (const std::exception &) {
        return false;
    }
    truncate(slot, 0);
    count_parked();
    while (n_parked() > llama_n_ctx(context_)) {
        slots_.least_recently_used_parked()->parked = {};
        count_parked();
    }
    return true;
}

void KvCache::count_parked() {
    size_t n = 0;
    for (const Slot & slot : slots_.all()) {
        n += slot.parked.tokens.size();
    }
    n_parked_ = n;
}

// Restores a parked text to the slot if that saves work: its common prefix with the wanted text must be longer than the
// n_in_cells tokens that the slot already has, and copying it must be cheaper than decoding the additional tokens.
// Returns true if the slot or the parked tokens have changed.
bool KvCache::unpark(Slot & slot, const llama_token * text, size_t most, size_t n_in_cells) {
    constexpr size_t copied_while_one_is_decoded = 64;  // tokens
    const auto n_swa = static_cast<size_t>(llama_model_n_swa(model_.get()));
    Slot * found = nullptr;
    size_t longest = n_in_cells;
    for (Slot & other : slots_.all()) {
        const size_t n = other.parked.tokens.size();
        const size_t shared = length_shared(other.parked.tokens, text, most);
        const bool has_window = n_swa == 0 || n <= n_swa || shared == n;
        if (shared > longest && has_window && (shared - n_in_cells) * copied_while_one_is_decoded >= n) {
            longest = shared;
            found = &other;
        }
    }
    if (found == nullptr) {
        return false;
    }
    ParkedText parked = std::exchange(found->parked, {});  // taken out of the slot, because make_room() could drop it
    const LlamaErrorCapture capture(/*failure_is_usual=*/true);
    const auto put_back = [&] {
        const size_t n_read = llama_state_seq_set_data(context_, parked.state.data(), parked.state.size(), slot.id);
        return n_read > 0 ? StateCheck::good : StateCheck::does_not_fit;
    };
    const bool is_back = load_state(slot, parked.tokens, put_back) && truncate(slot, longest) == longest;
    if (is_back && longest < parked.tokens.size()) {
        // The wanted text continues differently. Keep the parked copy for prompts that continue like it.
        found->parked = std::move(parked);
    }
    count_parked();
    return true;
}

// ---- Copying a slot's state -----------------------------------------------------------------------

int32_t KvCache::most_revocable(int32_t n_batch) const {
    return model_.is_recurrent() ? static_cast<int32_t>(llama_n_rs_seq(context_)) : n_batch - 1;
}

std::vector<uint8_t> KvCache::copy_state(const Slot & slot) {
    const LlamaErrorCapture capture;
    std::vector<uint8_t> state(llama_state_seq_get_size(context_, slot.id));
    const size_t size = llama_state_seq_get_data(context_, state.data(), state.size(), slot.id);
    check_rpc_connections(model_.rpc_servers());  // a broken connection leaves zeros in the state
    if (size == 0) {
        throw capture.error(ELIZA_ERR_FFI_FAULT,
                            "llama.cpp could not copy the state of slot " + std::to_string(slot.id));
    }
    state.resize(size);
    return state;
}

void KvCache::restore_state(Slot & slot, const std::vector<uint8_t> & state, const std::vector<llama_token> & tokens) {
    const LlamaErrorCapture capture(/*failure_is_usual=*/true);
    StateCheck check = StateCheck::good;
    const bool is_there = load_state(slot, tokens, [&] {
        check = set_checked_state(context_, slot.id, state);
        return check;
    });
    if (check == StateCheck::not_finite) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the saved state holds a value that is not a finite number");
    }
    if (!is_there) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "the saved state does not fit this context");
    }
}

// Calls `set` to put the state into the slot, and calls it again after making room for as long as that helps.
bool KvCache::load_state(Slot & slot, const std::vector<llama_token> & tokens,
                         const std::function<StateCheck()> & set) {
    std::vector<llama_token> cached = tokens;  // copied first, because allocating could fail after the cells are set
    llama_memory_seq_rm(memory(), slot.id, -1, -1);
    slot.cached.clear();
    slot.n_revocable = 0;
    StateCheck check = StateCheck::good;
    do {
        check = set();
        if (check == StateCheck::good &&
            llama_memory_seq_pos_max(memory(), slot.id) + 1 == static_cast<llama_pos>(tokens.size())) {
            slot.cached = std::move(cached);
            return true;
        }
        llama_memory_seq_rm(memory(), slot.id, -1, -1);
    } while (check != StateCheck::not_finite && make_room());
    return false;
}

// ---- Lanes ----------------------------------------------------------------------------------------

namespace {

// A lane without cells takes about as long as one with this many.
constexpr size_t cells_of_an_empty_lane = 32;

}  // namespace

double KvCache::lane_us(size_t n_cells) const {
    return us_a_lane_cell_.load(std::memory_order_relaxed) * static_cast<double>(n_cells + cells_of_an_empty_lane);
}

KvCache::Fork::Fork(KvCache & cache, const Slot * slot, int32_t n_lanes)
    : cache_(cache), n_cells_(slot != nullptr ? slot->cached.size() : 0) {
    const int64_t start = llama_time_us();
    lanes_.assign(cache_.free_lanes_.end() - n_lanes, cache_.free_lanes_.end());
    cache_.free_lanes_.resize(cache_.free_lanes_.size() - static_cast<size_t>(n_lanes));
    for (const llama_seq_id lane : lanes_) {
        if (slot != nullptr) {
            llama_memory_seq_cp(cache_.memory(), slot->id, lane, -1, -1);
        }
    }
    us_ = llama_time_us() - start;
}

KvCache::Fork::~Fork() {
    const int64_t start = llama_time_us();
    for (const llama_seq_id lane : lanes_) {
        llama_memory_seq_rm(cache_.memory(), lane, -1, -1);
    }
    us_ += llama_time_us() - start;
    const double n_lane_cells = static_cast<double>(lanes_.size() * (n_cells_ + cells_of_an_empty_lane));
    const double average = cache_.us_a_lane_cell_, latest = static_cast<double>(us_) / std::max(1.0, n_lane_cells);
    cache_.us_a_lane_cell_ = average > 0.0 ? 0.9 * average + 0.1 * latest : latest;
    // This cannot allocate, because the lanes were in this vector before.
    cache_.free_lanes_.insert(cache_.free_lanes_.end(), lanes_.begin(), lanes_.end());
}

void KvCache::Fork::keep(Slot & slot, llama_seq_id lane, const std::vector<llama_token> & tokens) {
    const auto begin = static_cast<llama_pos>(slot.cached.size());
    slot.cached.reserve(slot.cached.size() + tokens.size());  // first, because it can fail
    llama_memory_seq_cp(cache_.memory(), lane, slot.id, begin, begin + static_cast<llama_pos>(tokens.size()));
    slot.cached.insert(slot.cached.end(), tokens.begin(), tokens.end());
}

}  // namespace eliza
