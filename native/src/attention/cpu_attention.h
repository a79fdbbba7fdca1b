// Attention on the CPU, in place of llama.cpp's kernel for GGML_OP_FLASH_ATTN_EXT. The linker's option
// --wrap=ggml_compute_forward_flash_attn_ext redirects llama.cpp's calls; no other code calls it.
#pragma once

namespace eliza {

// False on macOS, on Windows and in the wheels, which use llama.cpp's kernel (cmake/CpuAttention.cmake).
#ifdef ELIZA_CPU_ATTENTION
constexpr bool has_cpu_attention = true;
#else
constexpr bool has_cpu_attention = false;
#endif

}  // namespace eliza
