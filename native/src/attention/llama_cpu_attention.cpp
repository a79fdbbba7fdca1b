// For programs that link llama.cpp without our kernel.
#include "attention/cpu_attention.h"
#include "ops.h"

void eliza_compute_attention(const ggml_compute_params * params, ggml_tensor * out) {
    ggml_compute_forward_flash_attn_ext(params, out);
}
