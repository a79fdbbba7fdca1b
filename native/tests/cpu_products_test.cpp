// Products with quantized matrices on the CPU, compared with llama.cpp's kernel for one row and one column.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "computed.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

struct Case {
    ggml_type type;
    int64_t k, rows, columns, n_batch = 1;
};

std::ostream & operator<<(std::ostream & out, const Case & c) {
    return out << ggml_type_name(c.type) << ", " << c.rows << " rows of " << c.k << ", " << c.columns << " columns, "
               << c.n_batch << " times";
}

class Product {
public:
    explicit Product(const Case & c)
        : case_(c), context_(ggml_init({size_t{64} << 20, nullptr, false})), generator_(static_cast<uint32_t>(c.k)) {
        ggml_cpu_init();
        a_ = ggml_new_tensor_2d(context_, c.type, c.k, c.rows);
        b_ = ggml_new_tensor_3d(context_, GGML_TYPE_F32, c.k, c.columns, c.n_batch);
        const std::vector<float> weights = numbers(c.k * c.rows, 0.3f);
        ggml_quantize_chunk(c.type, weights.data(), a_->data, 0, c.rows, c.k, nullptr);
        const std::vector<float> values = numbers(ggml_nelements(b_), 0.0f);
        std::copy(values.begin(), values.end(), static_cast<float *>(b_->data));
    }
    ~Product() { ggml_free(context_); }
    Product(const Product &) = delete;
    Product & operator=(const Product &) = delete;

    // [batch][column][row], of the columns from `first` to `end`
    std::vector<float> run(int n_threads, int64_t first, int64_t end) {
        ggml_tensor * some = ggml_view_3d(context_, b_, case_.k, end - first, case_.n_batch, b_->nb[1], b_->nb[2],
                                          static_cast<size_t>(first) * b_->nb[1]);
        ggml_tensor * result = ggml_mul_mat(context_, a_, some);
        return computed(context_, result, n_threads);
    }

    std::vector<float> expected() const {
        const ggml_type_traits_cpu & traits = *ggml_get_type_traits_cpu(case_.type);
        std::vector<char> column(ggml_row_size(traits.vec_dot_type, case_.k));
        std::vector<float> out;
        for (int64_t i = 0; i < case_.columns * case_.n_batch; ++i) {
            const auto * values = static_cast<const float *>(b_->data) + i * case_.k;
            ggml_get_type_traits_cpu(traits.vec_dot_type)->from_float(values, column.data(), case_.k);
            for (int64_t row = 0; row < case_.rows; ++row) {
                const char * weights = static_cast<const char *>(a_->data) + static_cast<size_t>(row) * a_->nb[1];
                float sum = NAN;
                traits.vec_dot(static_cast<int>(case_.k), &sum, 0, weights, 0, column.data(), 0, 1);
                out.push_back(sum);
            }
        }
        return out;
    }

private:
    std::vector<float> numbers(int64_t n, float mean) {
        std::normal_distribution<float> normal(mean);
        std::vector<float> out(static_cast<size_t>(n));
        for (float & value : out) value = normal(generator_);
        return out;
    }

    const Case case_;
    ggml_context * const context_;
    std::mt19937 generator_;
    ggml_tensor *a_, *b_;
};

class CpuProducts : public testing::TestWithParam<Case> {};

TEST_P(CpuProducts, AreThoseOfLlamaCpp) {
    const Case & c = GetParam();
    Product product(c);
    const std::vector<float> expected = product.expected();
    for (const int n_threads : {1, 3}) {
        const std::vector<float> found = product.run(n_threads, 0, c.columns);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
            ASSERT_NEAR(found[i], expected[i], 2e-6 * static_cast<double>(c.k)) << "result " << i;
        }
    }
}

TEST_P(CpuProducts, OfAColumnHaveTheSameBitsAloneAndTogether) {
    const Case & c = GetParam();
    if (c.n_batch > 1) return;
    Product product(c);
    const std::vector<float> together = product.run(2, 0, c.columns);
    for (int64_t i = 0; i < c.columns; ++i) {
        const std::vector<float> alone = product.run(1, i, i + 1);
        const auto begin = together.begin() + i * c.rows;
        EXPECT_EQ(alone, std::vector<float>(begin, begin + c.rows)) << "column " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(, CpuProducts,
                         testing::Values(Case{GGML_TYPE_Q4_1, 32, 1, 1}, Case{GGML_TYPE_Q4_1, 96, 3, 2},
                                         Case{GGML_TYPE_Q4_1, 576, 70, 21}, Case{GGML_TYPE_Q4_1, 1056, 130, 5},
                                         Case{GGML_TYPE_Q4_1, 2048, 9, 9, 2}, Case{GGML_TYPE_Q4_1, 4128, 5, 8},
                                         Case{GGML_TYPE_Q5_1, 32, 1, 1}, Case{GGML_TYPE_Q5_1, 608, 70, 21},
                                         Case{GGML_TYPE_Q5_1, 1056, 9, 9, 2}));

}  // namespace
