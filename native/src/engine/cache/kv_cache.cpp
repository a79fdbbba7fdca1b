#include "engine/cache/kv_cache.h"

#include <algorithm>

#include "engine/model/rpc_connections.h"
#include "error.h"
#include "log.h"

namespace eliza {

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
    throw invalid_argument(option + ": \"" + name + "\" is not a KV cache type; there are " + known);
}

KvCache::KvCache(const Model & model, llama_context * context, KvTypes types, int32_t n_slots, int32_t n_lanes)
    : model_(model), context_(context), types_(types), slots_(n_slots) {
    for (int32_t lane = n_lanes; lane-- > 0;) {
        free_lanes_.push_back(n_slots + lane);
    }
}

std::string KvCache::describe() const {
    return std::string(ggml_type_name(types_.k)) + "/" + ggml_type_name(types_.v) + " llama.cpp " +
           ELIZA_LLAMA_CPP_COMMIT;
}

size_t KvCache::match(Slot & slot, const llama_token * text, size_t most) {
    const auto shared_with = [&](const Slot & other) {
        const auto end = std::mismatch(text, text + most, other.cached.begin(), other.cached.end());
        return static_cast<size_t>(end.first - text);
    };
    const size_t own = truncate(slot, shared_with(slot));
    if (own == most || model_.is_recurrent()) {
        return own;  // what is recurrent is a state, not cells: a part of it cannot be shared
    }
    const Slot * donor = nullptr;
    size_t longest = own;
    for (const Slot & other : slots_.all()) {
        const size_t shared = shared_with(other);
        if (shared > longest && llama_memory_seq_pos_min(memory(), other.id) <= static_cast<llama_pos>(own)) {
            longest = shared;
            donor = &other;
        }
    }
    if (donor != nullptr) {
        // The cells are shared, not copied.
        llama_memory_seq_cp(memory(), donor->id, slot.id, static_cast<llama_pos>(own), static_cast<llama_pos>(longest));
        slot.cached.insert(slot.cached.end(), text + own, text + longest);
    }
    return longest;
}

size_t KvCache::truncate(Slot & slot, size_t n) {
    if (slot.cached.size() <= n) {
        return slot.cached.size();
    }
    // llama.cpp does not know which of the snapshots are of the last pass.
    const bool is_possible = !model_.is_recurrent() || slot.cached.size() - n <= slot.n_revocable;
    if (!is_possible || !llama_memory_seq_rm(memory(), slot.id, static_cast<llama_pos>(n), -1) ||
        !holds_window_of(slot, n)) {
        llama_memory_seq_rm(memory(), slot.id, -1, -1);
        n = 0;
    }
    slot.cached.resize(n);
    slot.n_revocable = 0;
    return n;
}

// llama.cpp overwrites cells that have left a sliding window, and steps back behind them all the same.
bool KvCache::holds_window_of(const Slot & slot, size_t n) const {
    const auto n_swa = static_cast<size_t>(llama_model_n_swa(model_.get()));
    if (n == 0 || n_swa == 0) {
        return true;
    }
    const llama_pos oldest = llama_memory_seq_pos_min(memory(), slot.id);
    return oldest >= 0 && static_cast<size_t>(oldest) <= n - std::min(n, n_swa);
}

bool KvCache::make_room() {
    Slot * slot = slots_.least_wanted();
    if (slot == nullptr) {
        return false;
    }
    truncate(*slot, slot->n_wanted);
    return true;
}

int32_t KvCache::most_revocable(int32_t n_batch) const {
    return model_.is_recurrent() ? static_cast<int32_t>(llama_n_rs_seq(context_)) : n_batch - 1;
}

std::vector<uint8_t> KvCache::copy_state(const Slot & slot) {
    std::vector<uint8_t> state(llama_state_seq_get_size(context_, slot.id));
    const size_t size = llama_state_seq_get_data(context_, state.data(), state.size(), slot.id);
    check_rpc_connections(model_.rpc_servers());  // or part of it may be zeros
    if (size == 0) {
        throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp could not copy the state of slot " + std::to_string(slot.id));
    }
    state.resize(size);
    return state;
}

void KvCache::restore_state(Slot & slot, const std::vector<uint8_t> & state, const std::vector<llama_token> & tokens) {
    llama_memory_seq_rm(memory(), slot.id, -1, -1);
    slot.cached.clear();
    slot.n_revocable = 0;
    const LlamaErrorCapture capture;
    do {
        if (llama_state_seq_set_data(context_, state.data(), state.size(), slot.id) != 0 &&
            llama_memory_seq_pos_max(memory(), slot.id) + 1 == static_cast<llama_pos>(tokens.size())) {
            slot.cached = tokens;
            return;
        }
        llama_memory_seq_rm(memory(), slot.id, -1, -1);
    } while (make_room());
    throw Error(ELIZA_ERR_FFI_FAULT, "the saved state does not fit this context" + capture.suffix());
}

KvCache::Fork::Fork(KvCache & cache, const Slot & slot, int32_t n_lanes) : cache_(cache) {
    lanes_.assign(cache_.free_lanes_.end() - n_lanes, cache_.free_lanes_.end());
    cache_.free_lanes_.resize(cache_.free_lanes_.size() - static_cast<size_t>(n_lanes));
    for (const llama_seq_id lane : lanes_) {
        llama_memory_seq_cp(cache_.memory(), slot.id, lane, -1, -1);
    }
}

KvCache::Fork::~Fork() {
    for (const llama_seq_id lane : lanes_) {
        llama_memory_seq_rm(cache_.memory(), lane, -1, -1);
    }
    // There was room for them before.
    cache_.free_lanes_.insert(cache_.free_lanes_.end(), lanes_.begin(), lanes_.end());
}

void KvCache::Fork::keep(Slot & slot, llama_seq_id lane, const std::vector<llama_token> & tokens) {
    const auto begin = static_cast<llama_pos>(slot.cached.size());
    llama_memory_seq_cp(cache_.memory(), lane, slot.id, begin, begin + static_cast<llama_pos>(tokens.size()));
    slot.cached.insert(slot.cached.end(), tokens.begin(), tokens.end());
}

}  // namespace eliza
