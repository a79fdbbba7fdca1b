#include "engine/cache/checked_state.h"

#include <cstring>
#include <new>
#include <stdexcept>

#include "ggml-backend.h"
#include "llama-io.h"
#include "llama-memory.h"

namespace eliza {
namespace {

class CheckingReader final : public llama_io_read_i {
public:
    explicit CheckingReader(const std::vector<uint8_t> & state) : state_(state) {}

    // Counts, positions and kinds are never negative. A cell at a negative position, or at INT32_MAX, could never be
    // freed, because it would be outside every range of positions that is removed.
    void read(void * out, size_t size) override {
        int32_t number = 0;
        std::memcpy(out, take(size), size);
        if (size == sizeof number) {
            std::memcpy(&number, out, size);
            if (number < 0 || number == INT32_MAX) {
                throw std::runtime_error("a count or a position is out of range");
            }
        }
    }

    void read_tensor(ggml_tensor * tensor, size_t offset, size_t size) override {
        const uint8_t * data = take(size);
        if (offset > ggml_nbytes(tensor) || size > ggml_nbytes(tensor) - offset) {
            throw std::runtime_error("the state has more cells than the cache");
        }
        is_finite_ = is_finite_ && ggml_validate_row_data(tensor->type, data, size);
        if (!is_finite_) {
            throw std::runtime_error("a value is not finite");
        }
        writes_.push_back({tensor, data, offset, size});
    }

    size_t n_bytes() override { return at_; }

    bool is_finite() const { return is_finite_; }
    bool is_at_end() const { return at_ == state_.size(); }
    void write() const {
        for (const Write & write : writes_) {
            ggml_backend_tensor_set(write.tensor, write.data, write.offset, write.size);
        }
    }

private:
    struct Write {
        ggml_tensor * tensor;
        const uint8_t * data;
        size_t offset, size;
    };

    const uint8_t * take(size_t size) {
        if (size > state_.size() - at_) {
            throw std::runtime_error("the state ends too early");
        }
        at_ += size;
        return state_.data() + at_ - size;
    }

    const std::vector<uint8_t> & state_;
    size_t at_ = 0;
    bool is_finite_ = true;
    std::vector<Write> writes_;
};

}  // namespace

uint64_t most_state_bytes(llama_context * context) {
    // In addition to the values of its tensors, a state has counts, and for each cell its position and other metadata.
    constexpr uint64_t bytes_of_counts = uint64_t{1} << 20, bytes_a_cell = 256;
    uint64_t bytes = bytes_of_counts + bytes_a_cell * llama_n_ctx(context);
    for (const auto & [buffer_type, size] : llama_get_memory(context)->memory_breakdown()) {
        bytes += size;
    }
    return bytes;
}

StateCheck set_checked_state(llama_context * context, llama_seq_id sequence, const std::vector<uint8_t> & state) {
    llama_synchronize(context);
    llama_memory_t memory = llama_get_memory(context);
    CheckingReader reader(state);
    bool fits = false;
    try {
        uint64_t magic_and_sequence = 0;  // the sequence's id when it was saved; not used
        reader.read(&magic_and_sequence, sizeof magic_and_sequence);
        memory->state_read(reader, sequence, 0);
        fits = reader.is_at_end();
    } catch (const std::bad_alloc &) {
        llama_memory_seq_rm(memory, sequence, -1, -1);
        throw;
    } catch (const std::exception &) {
        fits = false;
    }
    if (!fits) {
        llama_memory_seq_rm(memory, sequence, -1, -1);
        return reader.is_finite() ? StateCheck::does_not_fit : StateCheck::not_finite;
    }
    reader.write();
    return StateCheck::good;
}

}  // namespace eliza
