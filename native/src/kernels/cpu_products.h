// Products with quantized matrices on the CPU. llama.cpp calls this function for GGML_OP_MUL_MAT, in place of
// llamafile_sgemm() (cmake/CpuKernels.cmake).
#pragma once

#include <cstdint>

struct ggml_compute_params;

// C = A * B: C has m rows and n columns, A and B have k blocks in a row of A and a column of B. `lda`, `ldb` and `ldc`
// are the distances of rows of A, and columns of B and C. Returns false for types that it does not multiply.
extern "C" bool eliza_multiply(const ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * A,
                               int64_t lda, const void * B, int64_t ldb, void * C, int64_t ldc, int type_a, int type_b,
                               int type_c);
