// Attention on the CPU. llama.cpp calls this function for GGML_OP_FLASH_ATTN_EXT (cmake/CpuKernels.cmake).
#pragma once

struct ggml_compute_params;
struct ggml_tensor;

extern "C" void eliza_compute_attention(const ggml_compute_params * params, ggml_tensor * out);
