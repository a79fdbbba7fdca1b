// llama.cpp's kernel computes the rows of a small batch one at a time, looks at every cell of the KV cache for every
// row and head, and sums in half precision. This kernel
//   - reads only the cells that a row attends to, so the cells of other slots cost almost nothing;
//   - reads a cell once for all rows and heads that attend to it: the tokens of a prompt, the branches of a tree, and
//     the heads of a group;
//   - sums in single precision, and in an order that depends only on the order of the row's own cells. So a row has the
//     same result, bit for bit, alone and in a shared pass.
//
// The softmax is computed as in Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): weights are
// relative to the largest score so far, and the sums are multiplied again when that grows. Here the weights are powers
// of 2, and relative to a whole number. So this multiplication changes only exponents, and does not round.
#include "kernels/cpu_attention.h"

#include "kernels/simd.h"  // first: it silences warnings about a header of GCC

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "ops.h"

namespace eliza {
namespace {

constexpr int64_t most_queries = 64;  // of a task
constexpr int64_t most_cells = 48;    // of a block; a multiple of `unit`
constexpr int64_t unit = std::max<int64_t>(8, simd::width);
constexpr int64_t few_queries = 6;      // read halves directly; more share the converted cells
constexpr float lowest = -1048576;      // below every score
constexpr float hidden = 2 * lowest;    // the score of a cell that a row does not attend to
constexpr ggml_fp16_t masked = 0xFC00;  // minus infinity
constexpr float log2_e = 1.44269504f;

const char * at(const ggml_tensor & tensor, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<const char *>(tensor.data) + static_cast<size_t>(i1) * tensor.nb[1] +
           static_cast<size_t>(i2) * tensor.nb[2] + static_cast<size_t>(i3) * tensor.nb[3];
}

bool is_readable(const ggml_tensor & tensor) {
    return tensor.nb[0] == ggml_type_size(tensor.type) && tensor.ne[0] % simd::width == 0 &&
           (tensor.type == GGML_TYPE_F32 || ggml_get_type_traits(tensor.type)->to_float != nullptr);
}

// Return a pointer to the values of a row, which they may convert into `out`.
struct FloatReader {
    const float * operator()(const ggml_tensor & tensor, const char * row, float * out) const {
        const int64_t n = tensor.ne[0];
        if (tensor.type == GGML_TYPE_F16) {
            ggml_cpu_fp16_to_fp32(reinterpret_cast<const ggml_fp16_t *>(row), out, n);
        } else if (tensor.type == GGML_TYPE_F32) {
            std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
        } else {
            ggml_get_type_traits(tensor.type)->to_float(row, out, n);
        }
        return out;
    }
};
struct HalfReader {
    const simd::Half * operator()(const ggml_tensor &, const char * row, float *) const {
        return reinterpret_cast<const simd::Half *>(row);
    }
};

// The operation. q has a vector for each row (a token), head and sequence; k and v have one for each cell, group of
// heads and sequence. The mask has a value for each cell, row and sequence, which is added to the score.
class Attention {
public:
    Attention(const ggml_compute_params & params, ggml_tensor & out)
        : params_(params),
          out_(out),
          q_(*out.src[0]),
          k_(*out.src[1]),
          v_(*out.src[2]),
          mask_(out.src[3]),
          sinks_(out.src[4]),
          dk_(k_.ne[0]),
          dv_(v_.ne[0]),
          n_heads_(q_.ne[2]),
          group_(n_heads_ / k_.ne[2]) {
        const auto * values = reinterpret_cast<const float *>(out.op_params);
        scale_ = values[0];
        max_bias_ = values[1];
        softcap_ = values[2];
        // Each thread should get several tasks, but a group is divided only if a thread would get none.
        const int64_t n_queries = n_heads_ * q_.ne[1] * q_.ne[3];
        const int64_t share = n_queries / (params.nth > 1 ? 2 * params.nth : 1);
        queries_in_task_ =
            std::clamp(std::max(share, std::min(group_, n_queries / params.nth)), int64_t{1}, most_queries);
    }

    // Returns whether this kernel can compute the operation. A later llama.cpp could add parameters and inputs.
    bool is_supported() const {
        constexpr size_t n_known = 4;  // parameters: scale, max_bias, softcap, precision
        constexpr size_t n_sources = 5;
        const auto is_zero = [](int32_t value) { return value == 0; };
        const bool is_known = std::all_of(out_.op_params + n_known, std::end(out_.op_params), is_zero) &&
                              std::all_of(out_.src + n_sources, std::end(out_.src),
                                          [](const ggml_tensor * source) { return source == nullptr; });
        const bool has_usual_mask = mask_ == nullptr || (mask_->type == GGML_TYPE_F16 && mask_->ne[2] == 1);
        const bool is_one_to_one = k_.ne[2] == v_.ne[2] && k_.ne[3] == q_.ne[3] && v_.ne[3] == q_.ne[3];
        return is_known && !params_.use_ref && q_.type == GGML_TYPE_F32 && is_readable(q_) && is_readable(k_) &&
               is_readable(v_) && has_usual_mask && is_one_to_one &&
               static_cast<size_t>(n_scratch() * params_.nth) * sizeof(float) <= params_.wsize;
    }

    // Computes tasks until the threads have taken all of them. All threads find the same tasks, in the same order.
    void run() const {
        if (params_.nth > 1) {
            if (params_.ith == 0) {
                ggml_threadpool_chunk_set(params_.threadpool, params_.nth);
            }
            ggml_barrier(params_.threadpool);
        }
        int64_t mine = params_.ith, i = 0;
        for (int64_t sequence = 0; sequence < q_.ne[3]; ++sequence) {
            for (int64_t row = 0, n_rows = 0; row < q_.ne[1]; row += n_rows) {
                n_rows = rows_in_task(sequence, row);
                for (int64_t head = 0, n_heads = 0; head < n_heads_; head += n_heads, ++i) {
                    n_heads = heads_in_task(n_rows, head);
                    if (i == mine) {
                        compute({sequence, row, n_rows, head, n_heads});
                        mine = params_.nth > 1 ? ggml_threadpool_chunk_add(params_.threadpool, 1) : mine + 1;
                    }
                }
            }
        }
    }

private:
    // ---- Tasks ------------------------------------------------------------------------------------

    // Some heads of some rows: heads of one group, or all heads of several groups.
    struct Task {
        int64_t sequence, row, n_rows, head, n_heads;
    };

    // Returns how many rows from this one on attend mostly to the same cells.
    int64_t rows_in_task(int64_t sequence, int64_t row) const {
        const int64_t most = std::clamp(queries_in_task_ / group_, int64_t{1}, q_.ne[1] - row);
        if (mask_ == nullptr) {
            return most;
        }
        const ggml_fp16_t * first = mask_of(sequence, row);
        const int64_t n_first = most > 1 ? n_cells_of_both(first, first) : 0;
        for (int64_t n = 1; n < most; ++n) {
            const ggml_fp16_t * next = mask_of(sequence, row + n);
            if (2 * n_cells_of_both(first, next) < std::max(n_first, n_cells_of_both(next, next))) {
                return n;
            }
        }
        return most;
    }

    // Returns how many cells two rows of the mask both attend to.
    int64_t n_cells_of_both(const ggml_fp16_t * a, const ggml_fp16_t * b) const {
        constexpr int64_t part = 1 << 15;  // its number of cells fits in 16 bits
        int64_t n = 0;
        for (int64_t begin = 0; begin < k_.ne[1]; begin += part) {
            uint16_t n_of_part = 0;
            for (int64_t i = begin; i < std::min(begin + part, k_.ne[1]); ++i) {
                n_of_part = static_cast<uint16_t>(n_of_part + ((a[i] != masked) & (b[i] != masked)));
            }
            n += n_of_part;
        }
        return n;
    }

    // Returns how many heads from this one on belong to a task of n_rows rows.
    int64_t heads_in_task(int64_t n_rows, int64_t head) const {
        const int64_t most = std::max(queries_in_task_ / n_rows, int64_t{1});
        return most < group_ ? std::min(most, group_ - head % group_)
                             : std::min(most / group_ * group_, n_heads_ - head);
    }

    const ggml_fp16_t * mask_of(int64_t sequence, int64_t row) const {
        return reinterpret_cast<const ggml_fp16_t *>(at(*mask_, row, 0, sequence % mask_->ne[3]));
    }

    // Finds the cells that at least one row of a task attends to.
    class CellReader {
    public:
        CellReader(const Attention & attention, const Task & task) : attention_(attention), task_(task) {}

        // Stores the next cells, at most most_cells, and returns their number.
        int64_t next(int64_t * cells) {
            int64_t n = 0;
            while (n < most_cells) {
                if (bits_ != 0) {
                    cells[n++] = begin_ + __builtin_ctz(bits_);
                    bits_ &= bits_ - 1;
                } else if (end_ < attention_.k_.ne[1]) {
                    begin_ = end_;
                    end_ = std::min(begin_ + part, attention_.k_.ne[1]);
                    bits_ = attended();
                } else {
                    break;
                }
            }
            return n;
        }

    private:
        static constexpr int64_t part = 32;

        uint32_t attended() const {
            const int64_t n = end_ - begin_;
            if (attention_.mask_ == nullptr) {
                return ~uint32_t{0} >> (part - n);
            }
            uint16_t any[part] = {};  // not 0 if a row attends to the cell
            for (int64_t row = task_.row; row < task_.row + task_.n_rows; ++row) {
                const ggml_fp16_t * mask = attention_.mask_of(task_.sequence, row) + begin_;
                for (int64_t i = 0; i < n; ++i) {
                    any[i] = static_cast<uint16_t>(any[i] | (mask[i] ^ masked));
                }
            }
            uint32_t bits = 0;
            for (int64_t i = 0; i < part; ++i) {
                bits |= uint32_t{any[i] != 0} << i;
            }
            return bits;
        }

        const Attention & attention_;
        const Task & task_;
        int64_t begin_ = 0, end_ = 0;
        uint32_t bits_ = 0;  // cells from begin_ to end_ that are not yet returned
    };

    // ---- Queries ----------------------------------------------------------------------------------

    // The queries of a task that belong to one group, and a thread's part of the work buffer. Query i belongs to row
    // i / n_heads and head i % n_heads.
    struct Queries {
        int64_t sequence, row, n_rows, head, n_heads;
        float * vectors;  // [n][dk], multiplied by the scale
        float * sums;     // [n][dv], of values multiplied by weights
        float * totals;   // [n], of the weights
        float * bases;    // [n]: whole numbers, at least the scores so far
        float * slopes;   // [n]: factors of the mask
        float * scores;   // [n][most_cells]: first scores, then weights
        float * keys;     // [most_cells][dk]
        float * values;   // [most_cells][dv]

        int64_t n() const { return n_rows * n_heads; }
        int64_t row_of(int64_t i) const { return row + i / n_heads; }
        int64_t head_of(int64_t i) const { return head + i % n_heads; }
    };

    int64_t n_scratch() const { return (most_queries + most_cells) * (dk_ + dv_) + most_queries * (most_cells + 3); }

    Queries queries_of(const Task & task, int64_t head) const {
        float * next = static_cast<float *>(params_.wdata) + params_.ith * n_scratch();
        const auto take = [&next](int64_t n) { return std::exchange(next, next + n); };
        const int64_t first = (head - task.head) * task.n_rows;
        return {task.sequence,
                task.row,
                task.n_rows,
                head,
                std::min(task.n_heads, group_),
                take(most_queries * dk_) + first * dk_,
                take(most_queries * dv_) + first * dv_,
                take(most_queries) + first,
                take(most_queries) + first,
                take(most_queries) + first,
                take(most_queries * most_cells),
                take(most_cells * dk_),
                take(most_cells * dv_)};
    }

    void begin(const Queries & queries) const {
        const float factor = softcap_ != 0.0f ? scale_ / softcap_ : scale_ * log2_e;
        for (int64_t i = 0; i < queries.n(); ++i) {
            const char * row = at(q_, queries.row_of(i), queries.head_of(i), queries.sequence);
            float * vector = queries.vectors + i * dk_;
            FloatReader()(q_, row, vector);
            simd::scale(vector, dk_, factor);
            queries.slopes[i] = slope(queries.head_of(i)) * log2_e;
        }
        std::fill_n(queries.sums, queries.n() * dv_, 0.0f);
        std::fill_n(queries.totals, queries.n(), 0.0f);
        std::fill_n(queries.bases, queries.n(), lowest);
    }

    // The factor of the mask for a head: Press et al., "Train Short, Test Long" (2021), in llama.cpp's form.
    float slope(int64_t head) const {
        if (max_bias_ <= 0.0f) {
            return 1.0f;
        }
        const int64_t n = int64_t{1} << static_cast<int>(std::log2(static_cast<double>(n_heads_)));
        const float step = max_bias_ / static_cast<float>(n);
        return std::exp2(head < n ? -step * static_cast<float>(head + 1)
                                  : -step / 2.0f * static_cast<float>(2 * (head - n) + 1));
    }

    // Divides the sums by the totals. A sink is a score without a value. Returns false if a result is not finite.
    bool finish(const Queries & queries) const {
        bool is_finite = true;
        for (int64_t i = 0; i < queries.n(); ++i) {
            float * sums = queries.sums + i * dv_;
            float total = queries.totals[i];
            if (sinks_ != nullptr) {
                const float value = static_cast<const float *>(sinks_->data)[queries.head_of(i)];
                const float sink = std::max(value * log2_e, hidden);  // minus infinity is no sink
                raise_base(queries, i, sink);
                total = queries.totals[i] + simd::exp2(simd::all(sink), simd::all(queries.bases[i]))[0];
            }
            simd::scale(sums, dv_, total == 0.0f ? 0.0f : 1.0f / total);
            is_finite = is_finite && std::all_of(sums, sums + dv_, [](float x) { return std::isfinite(x); });
            const int64_t place = queries.head_of(i) + out_.ne[1] * (queries.row_of(i) + out_.ne[2] * queries.sequence);
            std::memcpy(static_cast<char *>(out_.data) + static_cast<size_t>(place) * out_.nb[1], sums,
                        static_cast<size_t>(dv_) * sizeof(float));
        }
        return is_finite;
    }

    // ---- Cells ------------------------------------------------------------------------------------

    void compute(const Task & task) const {
        if (simd::reads_halves && std::min(task.n_heads, group_) * task.n_rows <= few_queries &&
            k_.type == GGML_TYPE_F16 && v_.type == GGML_TYPE_F16) {
            compute<HalfReader>(task);
        } else {
            compute<FloatReader>(task);
        }
    }

    template <class Reader>
    void compute(const Task & task) const {
        const auto for_each_group = [&](const auto & use) {
            for (int64_t head = task.head; head < task.head + task.n_heads; head += group_) {
                use(queries_of(task, head));
            }
        };
        for_each_group([&](const Queries & queries) { begin(queries); });
        CellReader reader(*this, task);
        int64_t cells[2][most_cells];  // of this block and the next
        int64_t n = reader.next(cells[0]);
        for (int block = 0; n > 0; block ^= 1) {
            const int64_t n_next = reader.next(cells[block ^ 1]);
            for_each_group([&](const Queries & queries) {
                prefetch(queries, cells[block ^ 1], n_next);
                add_block<Reader>(queries, cells[block], n);
            });
            n = n_next;
        }
        bool is_finite = true;
        for_each_group([&](const Queries & queries) { is_finite = finish(queries) && is_finite; });
        if (is_finite || task.n_rows == 1) {
            return;
        }
        // A cell that is hidden from a row has the weight 0 there, but 0 times infinity is not 0. Rows alone read no
        // cells of others.
        for (int64_t row = task.row; row < task.row + task.n_rows; ++row) {
            compute<Reader>({task.sequence, row, 1, task.head, task.n_heads});
        }
    }

    // The keys and values of a group are far apart, so the CPU does not prefetch them by itself.
    void prefetch(const Queries & queries, const int64_t * cells, int64_t n) const {
        constexpr size_t line = 64;  // bytes
        for (const ggml_tensor * tensor : {&k_, &v_}) {
            const size_t size = ggml_row_size(tensor->type, tensor->ne[0]);
            for (int64_t i = 0; i < n; ++i) {
                const char * row = at(*tensor, cells[i], queries.head / group_, queries.sequence);
                for (size_t byte = 0; byte < size; byte += line) {
                    __builtin_prefetch(row + byte);
                }
            }
        }
    }

    template <class Reader>
    void add_block(const Queries & queries, const int64_t * cells, int64_t n) const {
        const Reader read;
        decltype(read(k_, nullptr, nullptr)) keys[most_cells], values[most_cells];
        for (int64_t i = 0; i < n; ++i) {
            const int64_t group = queries.head / group_;
            keys[i] = read(k_, at(k_, cells[i], group, queries.sequence), queries.keys + i * dk_);
            values[i] = read(v_, at(v_, cells[i], group, queries.sequence), queries.values + i * dv_);
        }
        const int64_t n_padded = (n + unit - 1) / unit * unit;
        std::fill(keys + n, keys + n_padded, keys[n - 1]);
        simd::dots(queries.vectors, queries.n(), keys, n_padded, dk_, queries.scores, most_cells);
        if (softcap_ != 0.0f) {
            limit_scores(queries, n_padded);
        }
        if (mask_ != nullptr) {
            add_mask(queries, cells, n);
        }
        for (int64_t i = 0; i < queries.n(); ++i) {
            weigh(queries, i, n, n_padded);
        }
        add_to_totals(queries, n);
        simd::add_weighted(queries.sums, queries.n(), dv_, queries.scores, most_cells, values, n);
    }

    void limit_scores(const Queries & queries, int64_t n) const {
        for (int64_t i = 0; i < queries.n(); ++i) {
            float * scores = queries.scores + i * most_cells;
            for (int64_t cell = 0; cell < n; cell += simd::width) {
                simd::store(scores + cell, simd::tanh(simd::load(scores + cell)) * (softcap_ * log2_e));
            }
        }
    }

    void add_mask(const Queries & queries, const int64_t * cells, int64_t n) const {
        const bool is_side_by_side = cells[n - 1] - cells[0] == n - 1;
        for (int64_t row = 0; row < queries.n_rows; ++row) {
            const ggml_fp16_t * mask = mask_of(queries.sequence, queries.row + row);
            if (is_side_by_side && is_zero(mask + cells[0], n)) {
                continue;
            }
            for (int64_t cell = 0; cell < n; ++cell) {
                const ggml_fp16_t half = mask[cells[cell]];
                if (half == 0) {
                    continue;
                }
                for (int64_t i = row * queries.n_heads; i < (row + 1) * queries.n_heads; ++i) {
                    float & score = queries.scores[i * most_cells + cell];
                    score = half == masked ? hidden : score + queries.slopes[i] * ggml_fp16_to_fp32(half);
                }
            }
        }
    }

    static bool is_zero(const ggml_fp16_t * values, int64_t n) {
        uint16_t any = 0;
        for (int64_t i = 0; i < n; ++i) {
            any = static_cast<uint16_t>(any | values[i]);
        }
        return any == 0;
    }

    void raise_base(const Queries & queries, int64_t i, float score) const {
        const float base = std::ceil(score);
        if (base > queries.bases[i]) {
            const float factor = simd::power_of_2(simd::all(queries.bases[i] - base))[0];
            queries.bases[i] = base;
            queries.totals[i] *= factor;
            simd::scale(queries.sums + i * dv_, dv_, factor);
        }
    }

    // Replaces the scores of a query by weights.
    void weigh(const Queries & queries, int64_t i, int64_t n, int64_t n_padded) const {
        float * scores = queries.scores + i * most_cells;
        std::fill(scores + n, scores + n_padded, hidden);
        simd::Vector most = simd::all(hidden);
        for (int64_t cell = 0; cell < n_padded; cell += simd::width) {
            most = simd::max(most, simd::load(scores + cell));
        }
        raise_base(queries, i, simd::largest(most));
        for (int64_t cell = 0; cell < n_padded; cell += simd::width) {
            simd::store(scores + cell, simd::exp2(simd::load(scores + cell), simd::all(queries.bases[i])));
        }
    }

    // Several queries at a time, because each addition waits for the previous one.
    void add_to_totals(const Queries & queries, int64_t n) const {
        constexpr int64_t at_once = 4;
        for (int64_t i = 0; i < queries.n(); i += at_once) {
            const int64_t n_queries = std::min(at_once, queries.n() - i);
            float totals[at_once] = {};
            std::copy_n(queries.totals + i, n_queries, totals);
            for (int64_t cell = 0; cell < n; ++cell) {
                for (int64_t j = 0; j < n_queries; ++j) {
                    totals[j] += queries.scores[(i + j) * most_cells + cell];
                }
            }
            std::copy_n(totals, n_queries, queries.totals + i);
        }
    }

    const ggml_compute_params & params_;
    ggml_tensor & out_;
    const ggml_tensor &q_, &k_, &v_;
    const ggml_tensor *mask_, *sinks_;
    const int64_t dk_, dv_;
    const int64_t n_heads_, group_;  // group_: heads that share keys and values
    int64_t queries_in_task_;        // at most, unless a task has a single row and head
    float scale_, max_bias_, softcap_;
};

}  // namespace
}  // namespace eliza

void eliza_compute_attention(const ggml_compute_params * params, ggml_tensor * out) {
    const eliza::Attention attention(*params, *out);
    if (attention.is_supported()) {
        attention.run();
    } else {
        ggml_compute_forward_flash_attn_ext(params, out);
    }
}
