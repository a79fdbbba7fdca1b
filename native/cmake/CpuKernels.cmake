# The functions that llama.cpp calls for attention and products on the CPU. LlamaCpp.cmake gives the calls their names.
#   - eliza_cpu_kernels, our kernels, are part of the library.
#   - llama_cpu_kernels calls llama.cpp's own kernels. It is linked into all other programs that link llama.cpp.

add_library(eliza_cpu_kernels OBJECT src/kernels/cpu_attention.cpp src/kernels/cpu_products.cpp)
# ThreadSanitizer does not see how llama.cpp synchronizes the threads.
target_compile_options(eliza_cpu_kernels PRIVATE -ffp-contract=fast -fno-sanitize=thread ${_vector_moves})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # the same CPU as for llama.cpp
  if(ELIZA_NATIVE)
    target_compile_options(eliza_cpu_kernels PRIVATE -march=native)
  else()
    target_compile_options(eliza_cpu_kernels PRIVATE -mavx2 -mfma -mf16c -mbmi2)
  endif()
endif()
target_link_libraries(eliza_core INTERFACE $<TARGET_OBJECTS:eliza_cpu_kernels>)

add_library(llama_cpu_kernels STATIC src/kernels/llama_cpu_kernels.cpp)
target_link_libraries(llama_cpu_kernels PUBLIC ggml::ggml-cpu)
set_property(TARGET ggml::ggml-cpu APPEND PROPERTY INTERFACE_LINK_LIBRARIES llama_cpu_kernels)

foreach(_target eliza_cpu_kernels llama_cpu_kernels)
  target_include_directories(${_target} PRIVATE src)
  target_include_directories(${_target} SYSTEM PRIVATE
    ${LLAMA_CPP_SOURCE_DIR}/ggml/include
    ${LLAMA_CPP_SOURCE_DIR}/ggml/src            # ggml-impl.h
    ${LLAMA_CPP_SOURCE_DIR}/ggml/src/ggml-cpu)  # ggml-cpu-impl.h, ops.h
endforeach()
