// For programs that link llama.cpp without our kernels.
#include "kernels/cpu_attention.h"
#include "kernels/cpu_products.h"
#include "llamafile/sgemm.h"
#include "ops.h"

void eliza_compute_attention(const ggml_compute_params * params, ggml_tensor * out) {
    ggml_compute_forward_flash_attn_ext(params, out);
}

bool eliza_multiply(const ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * A, int64_t lda,
                    const void * B, int64_t ldb, void * C, int64_t ldc, int type_a, int type_b, int type_c) {
    return llamafile_sgemm(params, m, n, k, A, lda, B, ldb, C, ldc, type_a, type_b, type_c);
}
