# Our attention for the CPU, which replaces llama.cpp's (src/attention/cpu_attention.cpp).

# The linkers of macOS and zig, which builds the wheels, have no option --wrap, and the kernel is not yet tested on
# Windows. There, llama.cpp's attention stays.
if(APPLE OR WIN32 OR ELIZA_ZIG)
  return()
endif()

add_library(eliza_cpu_attention OBJECT src/attention/cpu_attention.cpp)
target_include_directories(eliza_cpu_attention PRIVATE src)
target_include_directories(eliza_cpu_attention SYSTEM PRIVATE
  ${LLAMA_CPP_SOURCE_DIR}/ggml/include
  ${LLAMA_CPP_SOURCE_DIR}/ggml/src            # ggml-impl.h
  ${LLAMA_CPP_SOURCE_DIR}/ggml/src/ggml-cpu)  # ggml-cpu-impl.h
# ThreadSanitizer does not see how llama.cpp synchronizes the threads.
target_compile_options(eliza_cpu_attention PRIVATE -ffp-contract=fast -fno-sanitize=thread)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # the same CPU as for llama.cpp
  if(ELIZA_NATIVE)
    target_compile_options(eliza_cpu_attention PRIVATE -march=native)
  else()
    target_compile_options(eliza_cpu_attention PRIVATE -mavx2 -mfma -mf16c -mbmi2)
  endif()
endif()

target_compile_definitions(eliza_core PUBLIC ELIZA_CPU_ATTENTION)
target_link_libraries(eliza_core INTERFACE $<TARGET_OBJECTS:eliza_cpu_attention>)
target_link_options(eliza_core INTERFACE -Wl,--wrap=ggml_compute_forward_flash_attn_ext)
