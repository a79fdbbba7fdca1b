// Attention on the CPU, compared with the formula in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "computed.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "kernels/cpu_attention.h"

namespace {

using Mask = std::function<float(int64_t sequence, int64_t row, int64_t cell)>;

constexpr float off = -INFINITY;

struct Case {
    std::string name;
    int64_t dk = 64, dv = 64, heads = 8, groups = 8, rows = 1, cells = 256, sequences = 1;
    ggml_type k = GGML_TYPE_F16, v = GGML_TYPE_F16;
    Mask mask = nullptr;
    float max_bias = 0.0f, softcap = 0.0f;
    bool sinks = false;
    float first_sink = -2.0f;
};

std::ostream & operator<<(std::ostream & out, const Case & c) { return out << c.name; }

// Each row attends to the cells up to its own.
Mask text_after(int64_t n) {
    return [n](int64_t, int64_t row, int64_t cell) { return cell <= n + row ? 0.0f : off; };
}

// Each row has cells of its own, between the cells of the other rows.
Mask streams(int64_t n_streams, int64_t n) {
    return [=](int64_t, int64_t row, int64_t cell) {
        return cell % n_streams == row && cell / n_streams < n + row ? 0.0f : off;
    };
}

// All rows share a prompt, and each row has some cells of its own.
Mask branches(int64_t n) {
    return [n](int64_t, int64_t row, int64_t cell) {
        return cell < n || (cell < n + 40 && (cell - n) % 3 == row % 3) ? 0.0f : off;
    };
}

Mask distances(int64_t n) {
    return [n](int64_t, int64_t row, int64_t cell) {
        return cell <= n + row ? -static_cast<float>(n + row - cell) / 16.0f : off;
    };
}

class Operation {
public:
    // The keys and values in a cell depend only on its name.
    explicit Operation(
        const Case & c, const std::function<int64_t(int64_t)> & name_of = [](int64_t cell) { return cell; })
        : case_(c), context_(ggml_init({size_t{64} << 20, nullptr, false})) {
        q_ = values(GGML_TYPE_F32, c.dk, c.rows, c.heads, [](int64_t row) { return -1 - row; });
        k_ = values(c.k, c.dk, c.cells, c.groups, name_of);
        v_ = values(c.v, c.dv, c.cells, c.groups, name_of);
        if (c.mask) {
            mask_ = ggml_new_tensor_4d(context_, GGML_TYPE_F16, c.cells, c.rows, 1, c.sequences);
            auto * out = static_cast<ggml_fp16_t *>(mask_->data);
            for (int64_t s = 0; s < c.sequences; ++s) {
                for (int64_t row = 0; row < c.rows; ++row) {
                    for (int64_t cell = 0; cell < c.cells; ++cell) {
                        *out++ = ggml_fp32_to_fp16(c.mask(s, row, cell));
                    }
                }
            }
        }
        result_ = ggml_flash_attn_ext(context_, q_, k_, v_, mask_, scale(), c.max_bias, c.softcap);
        if (c.sinks) {
            sinks_ = ggml_new_tensor_1d(context_, GGML_TYPE_F32, c.heads);
            for (int64_t i = 0; i < c.heads; ++i) {
                static_cast<float *>(sinks_->data)[i] = sink(i);
            }
            ggml_flash_attn_ext_add_sinks(result_, sinks_);
        }
    }
    ~Operation() { ggml_free(context_); }
    Operation(const Operation &) = delete;
    Operation & operator=(const Operation &) = delete;

    // [sequence][row][head][dv]
    std::vector<float> run(int n_threads) { return computed(context_, result_, n_threads); }

    std::vector<float> expected() const {
        std::vector<float> out;
        for (int64_t s = 0; s < case_.sequences; ++s) {
            for (int64_t row = 0; row < case_.rows; ++row) {
                for (int64_t head = 0; head < case_.heads; ++head) {
                    add_expected(s, row, head, out);
                }
            }
        }
        return out;
    }

    // Makes the values of a cell infinite.
    void spoil(int64_t cell) {
        for (int64_t group = 0; group < case_.groups; ++group) {
            char * row = static_cast<char *>(v_->data) + static_cast<size_t>(cell) * v_->nb[1] +
                         static_cast<size_t>(group) * v_->nb[2];
            std::fill_n(reinterpret_cast<ggml_fp16_t *>(row), case_.dv, ggml_fp32_to_fp16(INFINITY));
        }
    }
    void set_parameter(int32_t index, int32_t value) { result_->op_params[index] = value; }

private:
    float sink(int64_t head) const { return head == 0 ? case_.first_sink : static_cast<float>(head) - 2.0f; }

    float scale() const { return 1.0f / std::sqrt(static_cast<float>(case_.dk)); }

    ggml_tensor * values(ggml_type type, int64_t n, int64_t n1, int64_t n2,
                         const std::function<int64_t(int64_t)> & name_of) {
        ggml_tensor * tensor = ggml_new_tensor_4d(context_, type, n, n1, n2, case_.sequences);
        std::vector<float> row(static_cast<size_t>(n));
        for (int64_t i = 0; i < ggml_nrows(tensor); ++i) {
            std::mt19937 random(static_cast<unsigned>(name_of(i % n1) * 1000 + i / n1));
            std::normal_distribution<float> normal;
            for (float & x : row) {
                x = ggml_fp16_to_fp32(ggml_fp32_to_fp16(normal(random)));
            }
            char * to = static_cast<char *>(tensor->data) + static_cast<size_t>(i) * tensor->nb[1];
            ggml_get_type_traits_cpu(type)->from_float(row.data(), to, n);
        }
        return tensor;
    }

    static std::vector<float> row_of(const ggml_tensor * tensor, int64_t i1, int64_t i2, int64_t i3) {
        std::vector<float> row(static_cast<size_t>(tensor->ne[0]));
        const char * from = static_cast<const char *>(tensor->data) + static_cast<size_t>(i1) * tensor->nb[1] +
                            static_cast<size_t>(i2) * tensor->nb[2] + static_cast<size_t>(i3) * tensor->nb[3];
        if (tensor->type == GGML_TYPE_F32) {
            std::memcpy(row.data(), from, row.size() * sizeof(float));
        } else {
            ggml_get_type_traits(tensor->type)->to_float(from, row.data(), tensor->ne[0]);
        }
        return row;
    }

    double slope(int64_t head) const {
        if (case_.max_bias == 0.0f) {
            return 1.0;
        }
        const double n = std::exp2(std::floor(std::log2(static_cast<double>(case_.heads))));
        const auto h = static_cast<double>(head);
        return h < n ? std::pow(std::exp2(-case_.max_bias / n), h + 1)
                     : std::pow(std::exp2(-case_.max_bias / 2 / n), 2 * (h - n) + 1);
    }

    void add_expected(int64_t s, int64_t row, int64_t head, std::vector<float> & out) const {
        const int64_t group = head / (case_.heads / case_.groups);
        const std::vector<float> q = row_of(q_, row, head, s);
        std::vector<double> sums(static_cast<size_t>(case_.dv), 0.0);
        double total = case_.sinks ? std::exp(static_cast<double>(sink(head))) : 0.0;
        for (int64_t cell = 0; cell < case_.cells; ++cell) {
            const float bias = case_.mask ? ggml_fp16_to_fp32(ggml_fp32_to_fp16(case_.mask(s, row, cell))) : 0.0f;
            if (bias == off) {
                continue;
            }
            const std::vector<float> k = row_of(k_, cell, group, s), v = row_of(v_, cell, group, s);
            double score = 0.0;
            for (size_t d = 0; d < k.size(); ++d) {
                score += static_cast<double>(q[d]) * static_cast<double>(k[d]);
            }
            score *= scale();
            score = case_.softcap > 0.0f ? case_.softcap * std::tanh(score / case_.softcap) : score;
            const double weight = std::exp(score + slope(head) * bias);
            total += weight;
            for (size_t d = 0; d < v.size(); ++d) {
                sums[d] += weight * static_cast<double>(v[d]);
            }
        }
        for (const double sum : sums) {
            out.push_back(static_cast<float>(total > 0.0 ? sum / total : 0.0));
        }
    }

    const Case case_;
    ggml_context * context_;
    ggml_tensor *q_, *k_, *v_, *mask_ = nullptr, *sinks_ = nullptr, *result_;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    const auto add = [&all](const std::string & name, const std::function<void(Case &)> & change) {
        all.emplace_back();
        all.back().name = name;
        change(all.back());
    };
    add("no_mask", [](Case & c) { c.rows = 3; });
    add("no_mask_odd_number_of_cells", [](Case & c) { c.cells = 77; });
    add("one_token", [](Case & c) { c.mask = text_after(100); });
    add("one_token_after_nothing", [](Case & c) { c.mask = text_after(0); });
    add("nothing_to_attend_to", [](Case & c) { c.mask = text_after(-1); });
    add("one_token_groups", [](Case & c) { c.groups = 2, c.mask = text_after(200); });
    add("one_token_one_group", [](Case & c) { c.groups = 1, c.heads = 71, c.mask = text_after(200); });
    add("a_text", [](Case & c) { c.rows = 200, c.mask = text_after(0); });
    add("a_text_after_another", [](Case & c) { c.rows = 30, c.mask = text_after(150); });
    add("a_text_groups", [](Case & c) { c.rows = 30, c.groups = 2, c.heads = 14, c.mask = text_after(150); });
    add("streams", [](Case & c) { c.rows = 16, c.mask = streams(16, 5); });
    add("streams_groups", [](Case & c) { c.rows = 5, c.groups = 4, c.mask = streams(5, 30); });
    add("branches", [](Case & c) { c.rows = 12, c.mask = branches(130); });
    add("a_window", [](Case & c) {
        c.rows = 40;
        c.mask = [](int64_t, int64_t row, int64_t cell) { return cell <= row + 90 && cell > row + 40 ? 0.0f : off; };
    });
    add("alibi", [](Case & c) { c.rows = 9, c.heads = 12, c.groups = 4, c.max_bias = 8.0f, c.mask = distances(90); });
    add("alibi_one_token", [](Case & c) { c.max_bias = 8.0f, c.mask = distances(90); });
    add("softcap", [](Case & c) { c.rows = 9, c.softcap = 2.0f, c.mask = text_after(90); });
    add("softcap_one_token", [](Case & c) { c.softcap = 2.0f, c.mask = text_after(90); });
    add("sinks", [](Case & c) { c.rows = 9, c.sinks = true, c.mask = text_after(90); });
    add("sinks_one_token", [](Case & c) { c.sinks = true, c.mask = text_after(90); });
    add("sinks_only", [](Case & c) { c.sinks = true, c.mask = text_after(-1); });
    add("own_cells", [](Case & c) { c.rows = 2, c.sequences = 3, c.mask = text_after(90); });
    add("own_cells_different_lengths", [](Case & c) {
        c.sequences = 3;
        c.mask = [](int64_t s, int64_t, int64_t cell) { return cell < 30 * (s + 1) ? 0.0f : off; };
    });
    add("large_keys_and_values",
        [](Case & c) { c.dk = 576, c.dv = 512, c.groups = 1, c.rows = 2, c.mask = text_after(70); });
    add("floats", [](Case & c) { c.k = c.v = GGML_TYPE_F32, c.rows = 20, c.mask = text_after(70); });
    add("floats_one_token", [](Case & c) { c.k = c.v = GGML_TYPE_F32, c.mask = text_after(70); });
    add("quantized",
        [](Case & c) { c.k = GGML_TYPE_Q8_0, c.v = GGML_TYPE_Q4_0, c.rows = 20, c.mask = text_after(70); });
    add("quantized_one_token", [](Case & c) { c.k = c.v = GGML_TYPE_Q8_0, c.mask = text_after(70); });
    add("bfloat", [](Case & c) { c.k = c.v = GGML_TYPE_BF16, c.rows = 2, c.mask = text_after(70); });
    return all;
}

class CpuKernels : public testing::TestWithParam<Case> {};

TEST_P(CpuKernels, ComputesTheFormula) {
    const std::vector<float> expected = Operation(GetParam()).expected();
    for (const int n_threads : {1, 2, 5}) {
        const std::vector<float> got = Operation(GetParam()).run(n_threads);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_NEAR(got[i], expected[i], 3e-6) << "value " << i << ", " << n_threads << " threads";
        }
    }
}

// Each row alone and together with the others, with more threads and with fewer.
TEST_P(CpuKernels, ARowHasTheSameBitsAloneAndWithOthers) {
    Case c = GetParam();
    const std::vector<float> all = Operation(c).run(1);
    EXPECT_EQ(Operation(c).run(3), all);
    if (!c.mask) {
        return;
    }
    const int64_t size_of_row = c.heads * c.dv;
    for (int64_t row = 0; row < c.rows; row += std::max<int64_t>(1, c.rows / 7)) {
        c.mask = [row, mask = GetParam().mask](int64_t s, int64_t r, int64_t cell) {
            return r == row ? mask(s, r, cell) : off;
        };
        const std::vector<float> alone = Operation(c).run(2);
        for (int64_t s = 0; s < c.sequences; ++s) {
            const auto begin = static_cast<size_t>((s * c.rows + row) * size_of_row);
            for (size_t i = begin; i < begin + static_cast<size_t>(size_of_row); ++i) {
                ASSERT_EQ(alone[i], all[i]) << "row " << row << ", value " << i - begin;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, CpuKernels, testing::ValuesIn(cases()), [](const auto & test) { return test.param.name; });

// Components that do not fill a vector are left to llama.cpp's kernel, which is less exact.
TEST(CpuKernelsTest, OddSizesWork) {
    Case c;
    c.dk = c.dv = 20;
    c.mask = text_after(90);
    const std::vector<float> expected = Operation(c).expected();
    const std::vector<float> got = Operation(c).run(2);
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 1e-2);
    }
}

TEST(CpuKernelsTest, ASinkOfMinusInfinityIsNoSink) {
    Case c;
    c.sinks = true;
    c.first_sink = -INFINITY;
    c.mask = text_after(90);
    const std::vector<float> expected = Operation(c).expected();
    const std::vector<float> got = Operation(c).run(2);
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 3e-6) << i;
    }
}

TEST(CpuKernelsTest, AnInfiniteValueReachesOnlyTheRowsThatAttendToIt) {
    for (const int64_t n_rows : {2, 3, 40}) {
        for (const int64_t groups : {8, 2}) {
            Case c;
            c.rows = n_rows;
            c.groups = groups;
            c.mask = text_after(90);
            const std::vector<float> expected = Operation(c).run(2);
            Operation spoiled(c);
            spoiled.spoil(90 + n_rows - 1);  // only the last row attends to it
            const std::vector<float> got = spoiled.run(2);
            const auto n_others = static_cast<size_t>((n_rows - 1) * c.heads * c.dv);
            for (size_t i = 0; i < got.size(); ++i) {
                if (i < n_others) {
                    ASSERT_EQ(got[i], expected[i]) << i << " of " << n_rows << " rows";
                } else {
                    ASSERT_FALSE(std::isfinite(got[i])) << i;
                }
            }
        }
    }
}

// llama.cpp's kernel is less exact, which shows that it computed the operation.
TEST(CpuKernelsTest, AnUnknownParameterIsLeftToLlamaCpp) {
    Case c;
    c.mask = text_after(90);
    const std::vector<float> ours = Operation(c).run(1);
    Operation unknown(c);
    unknown.set_parameter(4, 1);
    EXPECT_NE(unknown.run(1), ours);
}

// The cells of a row in other places of the cache.
TEST(CpuKernelsTest, OtherSlotsDoNotChangeABit) {
    Case c;
    c.groups = 4;
    c.cells = 512;
    c.mask = text_after(60);
    const std::vector<float> side_by_side = Operation(c).run(2);
    c.mask = [](int64_t, int64_t, int64_t cell) { return cell % 5 == 2 && cell / 5 <= 60 ? 0.0f : off; };
    EXPECT_EQ(Operation(c, [](int64_t cell) { return cell % 5 == 2 ? cell / 5 : 300 + cell; }).run(2), side_by_side);
}

}  // namespace
