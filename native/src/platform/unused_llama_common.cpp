// Functions of llama.cpp's `common` that only its unused functions call. The linkers for Linux and macOS remove unused
// functions before they look for what these call; the linker for Windows looks first.

#include <cstdlib>

#include "build-info.h"
#include "fit.h"
#include "ggml.h"

int llama_build_number() { std::abort(); }
const char * llama_commit() { std::abort(); }
const char * llama_compiler() { std::abort(); }
const char * llama_build_target() { std::abort(); }

void common_log_default_callback(ggml_log_level, const char *, void *) { std::abort(); }

common_params_fit_status common_fit_params(const char *, llama_model_params *, llama_context_params *, float *,
                                           llama_model_tensor_buft_override *, size_t *, uint32_t,
                                           const common_fit_extra_model *, ggml_log_level) {
    std::abort();
}

void common_memory_breakdown_print(const llama_context *) { std::abort(); }
