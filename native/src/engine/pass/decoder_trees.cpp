// Tree passes of a decoder, and what they cost. Declared in engine/pass/decoder.h.

#include <algorithm>
#include <limits>

#include "engine/pass/batch.h"
#include "engine/pass/decoder.h"

namespace eliza {
namespace {

// Empties lanes again, whatever happens.
struct DropLanes {
    llama_memory_t memory;
    std::vector<llama_seq_id> lanes;
    ~DropLanes() {
        for (const llama_seq_id lane : lanes) {
            llama_memory_seq_rm(memory, lane, -1, -1);
        }
    }
};

}  // namespace

void Decoder::decode_tree(Slot & slot, const std::vector<llama_token> & waiting, const TreeBatch & tree, bool whole,
                          const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                          const std::function<int32_t()> & kept) {
    const auto begin = static_cast<llama_pos>(slot.cached.size());
    const auto behind = begin + static_cast<llama_pos>(waiting.size());
    const auto n_slots = slots_.size();
    const auto lanes = [&](int32_t from, int32_t to) {
        std::vector<llama_seq_id> sequences;
        for (int32_t lane = from; lane < to; ++lane) {
            sequences.push_back(n_slots + lane);
        }
        return sequences;
    };
    const std::vector<llama_seq_id> all_lanes = lanes(0, tree.n_lanes);

    attach_gather(slot, {});
    const bool is_hidden = !whole && head_.can_stop();
    Batch batch;
    std::vector<llama_seq_id> everyone = all_lanes;
    everyone.push_back(slot.id);
    for (size_t i = 0; i < waiting.size(); ++i) {
        batch.add(waiting[i], begin + static_cast<llama_pos>(i), everyone, i + 1 == waiting.size());
    }
    for (const TreeBatch::Node & node : tree.nodes) {
        batch.add(node.token, behind + node.depth, lanes(node.lanes_begin, node.lanes_end), node.wants_logits);
    }

    llama_memory_t memory = llama_get_memory(context_.get());
    slot.cached.insert(slot.cached.end(), waiting.begin(), waiting.end());
    const DropLanes drop_lanes{memory, all_lanes};
    try {
        for (const llama_seq_id lane : all_lanes) {
            llama_memory_seq_cp(memory, slot.id, lane, -1, -1);
        }
        const StopBeforeHead stop(*this, is_hidden);
        run(batch.get(), begin);
    } catch (...) {
        truncate(slot, static_cast<size_t>(begin));
        throw;
    }

    const auto n_waiting = static_cast<int32_t>(waiting.size());
    size_t n_rows = 0;
    const auto row_of = [&](int32_t place_in_batch) {
        return is_hidden ? LogitsRow(head_, head_.rows()[n_rows++])
                         : LogitsRow(llama_get_logits_ith(context_.get(), place_in_batch));
    };
    if (n_waiting > 0) {
        on_row(-1, row_of(n_waiting - 1));
    }
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
        if (tree.nodes[i].wants_logits) {
            const auto place = static_cast<int32_t>(i);
            on_row(place, row_of(n_waiting + place));
        }
    }
    if (const int32_t place = kept(); place >= 0) {
        const TreeBatch::Node & node = tree.nodes[static_cast<size_t>(place)];
        llama_memory_seq_cp(memory, n_slots + node.lanes_begin, slot.id, behind, behind + node.depth + 1);
        std::vector<llama_token> path(static_cast<size_t>(node.depth) + 1);
        for (int32_t at = place; at >= 0; at = tree.nodes[static_cast<size_t>(at)].parent) {
            path[static_cast<size_t>(tree.nodes[static_cast<size_t>(at)].depth)] =
                tree.nodes[static_cast<size_t>(at)].token;
        }
        slot.cached.insert(slot.cached.end(), path.begin(), path.end());
    }
}

std::optional<PassCost> Decoder::pass_cost(const Turn &) {
    if (!pass_cost_) {
        take_over_logits(nullptr);
        try {
            calibrate();
        } catch (const ContextFull &) {
            return std::nullopt;
        }
    }
    return pass_cost_;
}

// On a lane, so that no slot is touched.
void Decoder::calibrate() {
    constexpr int32_t n_many = 8;
    const auto lane = slots_.size();
    llama_memory_t memory = llama_get_memory(context_.get());
    const auto time = [&](int32_t n_tokens, int32_t n_rows) {
        Batch batch;
        for (int32_t i = 0; i < n_tokens; ++i) {
            batch.add(i, i, {lane}, i >= n_tokens - n_rows);
        }
        double best = std::numeric_limits<double>::infinity();
        for (int repeat = 0; repeat < 3; ++repeat) {  // the first one also builds the graph
            const int64_t start = llama_time_us();
            run(batch.get(), 0);
            llama_synchronize(context_.get());
            best = std::min(best, static_cast<double>(llama_time_us() - start));
            llama_memory_seq_rm(memory, lane, -1, -1);
        }
        return best;
    };
    const DropLanes drop_lane{memory, {lane}};
    const StopBeforeHead stop(*this, head_.can_stop());
    const double one = time(1, 1), many = time(n_many, 1), rows = time(n_many, n_many);
    const int64_t start = llama_time_us();
    for (int repeat = 0; repeat < 8; ++repeat) {
        llama_memory_seq_cp(memory, 0, lane, -1, -1);
        llama_memory_seq_rm(memory, lane, -1, -1);
    }
    PassCost cost;
    cost.lane = static_cast<double>(llama_time_us() - start) / 8.0;
    cost.row = std::max(0.0, (rows - many) / (n_many - 1));
    cost.token = std::max(0.0, (many - one) / (n_many - 1));
    cost.pass = std::max(0.0, one - cost.token - cost.row);
    pass_cost_ = cost;
}

}  // namespace eliza
