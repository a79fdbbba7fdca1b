// Vectors of floats, as wide as the CPU's registers, and products of small matrices.
//
// The order of a sum does not depend on the other results that a function computes. So the product of a vector and a
// row has the same bits alone and together with others.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __AVX__
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns about its own header, for AVX-512
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace eliza::simd {

#if defined(__AVX512DQ__)
constexpr int64_t width = 16;
#elif defined(__AVX__)
constexpr int64_t width = 8;
#else
constexpr int64_t width = 4;
#endif

typedef float Vector __attribute__((vector_size(width * sizeof(float))));
typedef uint32_t Bits __attribute__((vector_size(width * sizeof(uint32_t))));

// A number in half precision. If `reads_halves` is false, load() cannot read it.
struct Half {
    uint16_t bits;
};
#if defined(__AVX512DQ__)
constexpr bool reads_halves = true;
inline Vector load(const Half * from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
#elif defined(__AVX__) && defined(__F16C__)
constexpr bool reads_halves = true;
inline Vector load(const Half * from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}
#elif defined(__aarch64__)
constexpr bool reads_halves = true;
inline Vector load(const Half * from) { return vcvt_f32_f16(vld1_f16(reinterpret_cast<const __fp16 *>(from))); }
#else
constexpr bool reads_halves = false;
inline Vector load(const Half *) { return Vector{}; }
#endif

inline Vector load(const float * from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
inline void store(float * to, Vector v) { std::memcpy(to, &v, sizeof v); }

inline Vector all(float x) { return x - Vector{}; }  // compiles to a broadcast, unlike x + 0
inline Vector max(Vector a, Vector b) { return a > b ? a : b; }
inline Vector min(Vector a, Vector b) { return a < b ? a : b; }
inline Bits bits_of(Vector v) { return reinterpret_cast<Bits>(v); }

inline float largest(Vector v) {
    float most = v[0];
    for (int64_t i = 1; i < width; ++i) {
        most = v[i] > most ? v[i] : most;
    }
    return most;
}

// Stores the sums of four vectors.
inline void store_sums(float * to, Vector a, Vector b, Vector c, Vector d) {
#if defined(__AVX__)
#if defined(__AVX512DQ__)
    const auto fold = [](__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); };
#else
    const auto fold = [](__m256 v) { return v; };
#endif
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#elif defined(__aarch64__)
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
#else
    const Vector vectors[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
        to[i] = (vectors[i][0] + vectors[i][1]) + (vectors[i][2] + vectors[i][3]);
    }
#endif
}

constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds numbers below 2^22 to integers

inline Vector round(Vector x) { return (x + magic) - magic; }

// 2 to the power of n, for whole numbers n from -126 to 127. Below -126 the result is 0.
inline Vector power_of_2(Vector n) {
    const Bits exponent = (bits_of(max(n, all(-127.0f)) + magic) + 127) << 23;
    return reinterpret_cast<Vector>(exponent & reinterpret_cast<Bits>(n >= -126.0f));
}

// 2 to the power of x - base, where base is a whole number and x at most base + 1. If both have magnitudes below 2^22,
// another base changes only the exponent of the result. The relative error is below 2e-7.
inline Vector exp2(Vector x, Vector base) {
    const Vector n = round(x);
    const Vector r = (x - n) * 0.693147181f;
    Vector p = all(1.0f / 5040);  // the Taylor series of exp(r), |r| <= ln(2) / 2
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * power_of_2(n - base);
}

inline Vector tanh(Vector x) {
    constexpr float two_log2_e = 2.88539008f;
    return 1.0f - 2.0f / (exp2(max(min(x, all(20.0f)), all(-20.0f)) * two_log2_e, all(0.0f)) + 1.0f);
}

inline void scale(float * values, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i += width) {
        store(values + i, load(values + i) * factor);
    }
}

// Stores the products of Q vectors of n_k values, side by side, with C rows, given by pointers. The sums stay in
// registers.
template <int Q, int C, class T>
inline void dots_block(const float * vectors, const T * const * rows, int64_t n_k, float * out, int64_t out_step) {
    Vector sums[Q][C] = {};
    for (int64_t k = 0; k < n_k; k += width) {
        Vector vector[Q];
        for (int q = 0; q < Q; ++q) {
            vector[q] = load(vectors + q * n_k + k);
        }
        for (int c = 0; c < C; ++c) {
            const Vector row = load(rows[c] + k);
            for (int q = 0; q < Q; ++q) {
                sums[q][c] += vector[q] * row;
            }
        }
    }
    for (int q = 0; q < Q; ++q) {
        for (int c = 0; c < C; c += 4) {
            store_sums(out + q * out_step + c, sums[q][c], sums[q][c + 1], sums[q][c + 2], sums[q][c + 3]);
        }
    }
}

template <int Q, int C, class T>
inline void dots_of(const float * vectors, const T * const * rows, int64_t n_rows, int64_t n_k, float * out,
                    int64_t out_step) {
    for (int64_t i = 0; i < n_rows; i += C) {
        dots_block<Q, C>(vectors, rows + i, n_k, out + i, out_step);
    }
}

// Stores the products of vectors with rows. The number of rows is a multiple of 8.
template <class T>
inline void dots(const float * vectors, int64_t n_vectors, const T * const * rows, int64_t n_rows, int64_t n_k,
                 float * out, int64_t out_step) {
    int64_t i = 0;
    for (; i + 3 <= n_vectors; i += 3) {
        dots_of<3, 4>(vectors + i * n_k, rows, n_rows, n_k, out + i * out_step, out_step);
    }
    for (; i < n_vectors; ++i) {
        dots_of<1, 8>(vectors + i * n_k, rows, n_rows, n_k, out + i * out_step, out_step);
    }
}

// Adds the rows, multiplied by M lists of weights, to M sums. Computes N vectors of each sum, which stay in registers.
template <int M, int N, class T>
inline void add_weighted_block(float * sums, int64_t n_columns, const float * weights, int64_t weights_step,
                               const T * const * rows, int64_t n_rows, int64_t column) {
    Vector out[M][N];
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; ++j) {
            out[i][j] = load(sums + i * n_columns + column + j * width);
        }
    }
    for (int64_t k = 0; k < n_rows; ++k) {
        Vector row[N];
        for (int j = 0; j < N; ++j) {
            row[j] = load(rows[k] + column + j * width);
        }
        for (int i = 0; i < M; ++i) {
            const Vector weight = all(weights[i * weights_step + k]);
            for (int j = 0; j < N; ++j) {
                out[i][j] += weight * row[j];
            }
        }
    }
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; ++j) {
            store(sums + i * n_columns + column + j * width, out[i][j]);
        }
    }
}

template <int M, int N, class T>
inline void add_weighted_of(float * sums, int64_t n_columns, const float * weights, int64_t weights_step,
                            const T * const * rows, int64_t n_rows) {
    int64_t column = 0;
    for (; column + N * width <= n_columns; column += N * width) {
        add_weighted_block<M, N>(sums, n_columns, weights, weights_step, rows, n_rows, column);
    }
    for (; column < n_columns; column += width) {
        add_weighted_block<M, 1>(sums, n_columns, weights, weights_step, rows, n_rows, column);
    }
}

// Adds rows of n_columns values, a multiple of the width, to sums: to each with its own weights.
template <class T>
inline void add_weighted(float * sums, int64_t n_sums, int64_t n_columns, const float * weights, int64_t weights_step,
                         const T * const * rows, int64_t n_rows) {
    int64_t i = 0;
    const auto add = [&](auto of) {
        of(sums + i * n_columns, n_columns, weights + i * weights_step, weights_step, rows, n_rows);
    };
    for (; i + 6 <= n_sums; i += 6) {
        add(add_weighted_of<6, 2, T>);
    }
    switch (n_sums - i) {
        case 5: return add(add_weighted_of<5, 2, T>);
        case 4: return add(add_weighted_of<4, 2, T>);
        case 3: return add(add_weighted_of<3, 4, T>);
        case 2: return add(add_weighted_of<2, 4, T>);
        case 1: return add(add_weighted_of<1, 8, T>);
        default: return;
    }
}

}  // namespace eliza::simd
