// For weights of the types Q4_1 and Q5_1, llama.cpp has only a kernel for one row and one column, which unpacks the
// weights again for each token. This kernel unpacks a part of a row once for several tokens. The order of a sum depends
// neither on the number of tokens nor on their places. So a token has the same result, bit for bit, alone and in a
// shared pass.
//
// 32 neighbouring weights are scale * q + offset, where q has no sign. 32 neighbouring values x of a token are
// scale * q, where q has a sign. So their products add up to scale * scale * sum(q * q) + offset * sum(x).
#include "kernels/cpu_products.h"

#include <algorithm>
#include <cstring>

#include "kernels/simd.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml-cpu-impl.h"
#include "ggml.h"
#include "llamafile/sgemm.h"

#if defined(__AVX2__) && defined(__F16C__) && (!defined(__AVX512DQ__) || defined(__AVX512BW__))
#define ELIZA_HAS_PRODUCTS

namespace eliza {
namespace {

constexpr int64_t block = 32;     // values
constexpr int64_t part = 1024;    // values of a row or a column that are multiplied at a time
constexpr int64_t n_columns = 8;  // that are multiplied at a time
constexpr int64_t n_rows = 64;    // that stay in the CPU's cache while all columns are multiplied with them
constexpr int64_t step = 4 * simd::width;

// A part of a row or a column: numbers, the scale of each four of them, and for each block the offset of weights, or
// the sum of x.
struct Panel {
    alignas(64) uint8_t numbers[part];
    float scales[part / 4];
    float offsets[part / block];
};

__m256i load(const void * from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
void store(void * to, __m256i numbers) { _mm256_storeu_si256(static_cast<__m256i *>(to), numbers); }

__m256i nibbles(const uint8_t * pairs) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i *>(pairs));
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), _mm256_set1_epi8(15));
}

struct Q8_1 {
    using Block = block_q8_1;
    static __m256i numbers(const Block & of) { return load(of.qs); }
};
struct Q4_1 {
    using Block = block_q4_1;
    static __m256i numbers(const Block & of) { return nibbles(of.qs); }
};
struct Q5_1 {
    using Block = block_q5_1;
    static __m256i numbers(const Block & of) {
        int32_t all;
        std::memcpy(&all, of.qh, sizeof all);
        // Each byte gets the byte that has its bit, and tests the bit.
        const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(all), places);
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
        return _mm256_or_si256(nibbles(of.qs), _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
    }
};

// Unpacks neighbouring blocks, and zeros up to the end of a step and of a vector of offsets.
template <typename Type>
void unpack(const typename Type::Block * blocks, int64_t n, Panel & panel) {
    for (int64_t i = 0; i < n; ++i) {
        store(panel.numbers + block * i, Type::numbers(blocks[i]));
        int32_t halves;  // the scale, and the offset or the sum
        std::memcpy(&halves, blocks + i, sizeof halves);
        const __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(halves));
        _mm256_storeu_ps(panel.scales + block / 4 * i, _mm256_broadcastss_ps(both));
        panel.offsets[i] = _mm_cvtss_f32(_mm_movehdup_ps(both));
    }
    const int64_t n_values = (block * n + step - 1) / step * step;
    std::fill(panel.numbers + block * n, panel.numbers + n_values, uint8_t{0});
    std::fill(panel.scales + block / 4 * n, panel.scales + n_values / 4, 0.0f);
    std::fill(panel.offsets + n, panel.offsets + (n + simd::width - 1) / simd::width * simd::width, 0.0f);
}

// The products of four numbers without sign and four with sign each, summed.
simd::Vector dot(const uint8_t * a, const uint8_t * b) {
    typedef int32_t Sums __attribute__((vector_size(step)));
#if defined(__AVX512VNNI__)
    const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(a), _mm512_loadu_si512(b));
#elif defined(__AVX512DQ__)
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
    const __m512i sums = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#else
    const __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(load(a), load(b)), _mm256_set1_epi16(1));
#endif
    return __builtin_convertvector(reinterpret_cast<Sums>(sums), simd::Vector);
}

// Writes the products of a row with columns, up to a multiple of four.
template <int64_t columns>
void multiply(const Panel & row, const Panel * panels, int64_t n_blocks, float * out) {
    simd::Vector sums[(columns + 3) / 4 * 4] = {};
    for (int64_t i = 0; i < block * n_blocks; i += step) {
        const simd::Vector scales = simd::load(row.scales + i / 4);
        for (int64_t column = 0; column < columns; ++column) {
            const Panel & x = panels[column];
            sums[column] += dot(row.numbers + i, x.numbers + i) * (scales * simd::load(x.scales + i / 4));
        }
    }
    for (int64_t i = 0; i < n_blocks; i += simd::width) {
        const simd::Vector offsets = simd::load(row.offsets + i);
        for (int64_t column = 0; column < columns; ++column) {
            sums[column] += offsets * simd::load(panels[column].offsets + i);
        }
    }
    for (int64_t column = 0; column < columns; column += 4) {
        simd::store_sums(out + column, sums[column], sums[column + 1], sums[column + 2], sums[column + 3]);
    }
}

constexpr decltype(&multiply<1>) multiply_columns[n_columns] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>,
                                                                multiply<5>, multiply<6>, multiply<7>, multiply<8>};

struct Shape {
    int64_t n, k, lda, ldb, ldc;
};

// Multiplies the rows from `begin` to `end` with all columns.
template <typename Type>
void multiply_rows(int64_t begin, int64_t end, const Shape & shape, const void * A, const void * B, void * C) {
    const auto * const a = static_cast<const typename Type::Block *>(A);
    const auto * const b = static_cast<const block_q8_1 *>(B);
    auto * const c = static_cast<float *>(C);
    Panel row, columns[n_columns];
    float products[n_columns];
    for (int64_t first = 0; first < shape.k; first += part / block) {
        const int64_t n_blocks = std::min(part / block, shape.k - first);
        for (int64_t top = begin; top < end; top += n_rows) {
            for (int64_t left = 0; left < shape.n; left += n_columns) {
                const int64_t n = std::min(n_columns, shape.n - left);
                for (int64_t i = 0; i < n; ++i) {
                    unpack<Q8_1>(b + (left + i) * shape.ldb + first, n_blocks, columns[i]);
                }
                for (int64_t y = top; y < std::min(end, top + n_rows); ++y) {
                    unpack<Type>(a + y * shape.lda + first, n_blocks, row);
                    multiply_columns[n - 1](row, columns, n_blocks, products);
                    for (int64_t i = 0; i < n; ++i) {
                        float & out = c[(left + i) * shape.ldc + y];
                        out = first == 0 ? products[i] : out + products[i];
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace eliza

#endif

bool eliza_multiply(const ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * A, int64_t lda,
                    const void * B, int64_t ldb, void * C, int64_t ldc, int type_a, int type_b, int type_c) {
#ifdef ELIZA_HAS_PRODUCTS
    if (type_b == GGML_TYPE_Q8_1 && type_c == GGML_TYPE_F32 && (type_a == GGML_TYPE_Q4_1 || type_a == GGML_TYPE_Q5_1)) {
        const int64_t share = (m + params->nth - 1) / params->nth, begin = std::min(m, params->ith * share);
        const auto rows =
            type_a == GGML_TYPE_Q4_1 ? eliza::multiply_rows<eliza::Q4_1> : eliza::multiply_rows<eliza::Q5_1>;
        rows(begin, std::min(m, begin + share), {n, k, lda, ldb, ldc}, A, B, C);
        return true;
    }
#endif
    return llamafile_sgemm(params, m, n, k, A, lda, B, ldb, C, ldc, type_a, type_b, type_c);
}
