# The build options of llama.cpp and the link libraries for each value of ELIZA_BACKEND. Every backend also
# includes the CPU backend.
#
# Sets _backend_args, the arguments of llama.cpp's CMake, and defines eliza_link_backend(), which is
# called after llama.cpp has been found. llama.cpp is a static library, so we must link most of the system
# libraries it needs. scripts/check_toolchain.py lists the tools and headers for each backend and how to get them.

set(ELIZA_BACKENDS cpu cuda vulkan metal hip sycl opencl blas rpc)
set_property(CACHE ELIZA_BACKEND PROPERTY STRINGS ${ELIZA_BACKENDS})
if(NOT ELIZA_BACKEND IN_LIST ELIZA_BACKENDS)
  list(JOIN ELIZA_BACKENDS ", " _known)
  message(FATAL_ERROR "ELIZA_BACKEND: \"${ELIZA_BACKEND}\" is not a known backend; expected one of ${_known}")
endif()

set(ELIZA_CUDA_ARCHITECTURES "" CACHE STRING "cuda: compute capabilities, 90 or 80;90; empty: the GPUs of this machine")
set(ELIZA_CUBLAS_DIR "" CACHE PATH "cuda: folder with include/ and lib/ of cuBLAS, if the toolkit does not include it")
set(ELIZA_BLAS_VENDOR "OpenBLAS" CACHE STRING "blas: a vendor name of CMake's FindBLAS")
set(VULKAN_INCLUDE_DIR "" CACHE PATH "vulkan: folder with vulkan/ and spirv/ headers, if the system's are too old")

option(ELIZA_RPC "Add llama.cpp's RPC client to the backend; ELIZA_BACKEND=rpc implies it" OFF)
if(ELIZA_BACKEND STREQUAL "rpc")
  set(ELIZA_RPC ON)
endif()

set(_backend_args "")
if(ELIZA_RPC)
  # A library that happens to be installed on this machine must not become a requirement on others.
  list(APPEND _backend_args -DGGML_RPC=ON -DGGML_RPC_RDMA=OFF)
  set(ELIZA_RPC_SOURCES src/engine/model/rpc_connections.cpp)
  set_source_files_properties(${ELIZA_RPC_SOURCES} PROPERTIES
    COMPILE_OPTIONS "-isystem;${LLAMA_CPP_SOURCE_DIR}/ggml/src/ggml-rpc")
else()
  set(ELIZA_RPC_SOURCES src/engine/model/rpc_connections_absent.cpp)
endif()
if(ELIZA_BACKEND STREQUAL "cuda")
  list(APPEND _backend_args
    -DGGML_CUDA=ON
    # Calls to the driver's library would keep our library from loading on a machine without the driver.
    -DGGML_CUDA_NO_VMM=ON
    -DGGML_CUDA_NCCL=OFF)
  set(ELIZA_GPU_LOADER src/platform/cublas_loader.c)
  if(ELIZA_CUDA_ARCHITECTURES)
    string(REPLACE ";" "\\;" _architectures "${ELIZA_CUDA_ARCHITECTURES}")
    list(APPEND _backend_args "-DCMAKE_CUDA_ARCHITECTURES=${_architectures}")
  endif()
  if(ELIZA_CUBLAS_DIR)
    # A wheel of cuBLAS has no libcublas.so, only the versioned file name.
    file(GLOB _cublas ${ELIZA_CUBLAS_DIR}/lib/libcublas.so ${ELIZA_CUBLAS_DIR}/lib/libcublas.so.*)
    if(NOT _cublas)
      message(FATAL_ERROR "ELIZA_CUBLAS_DIR: expected lib/libcublas.so in ${ELIZA_CUBLAS_DIR}")
    endif()
    list(GET _cublas 0 _cublas)
    set(CUDA_cublas_LIBRARY ${_cublas} CACHE FILEPATH "" FORCE)
    list(APPEND _backend_args
      -DCUDA_cublas_LIBRARY=${_cublas}
      -DCMAKE_CUDA_FLAGS=-isystem\ ${ELIZA_CUBLAS_DIR}/include)
  endif()
elseif(ELIZA_BACKEND STREQUAL "vulkan")
  # libvulkan is not linked, so that the library also loads on a machine without it.
  set(Vulkan_LIBRARY unused CACHE STRING "" FORCE)
  list(APPEND _backend_args -DGGML_VULKAN=ON -DVulkan_LIBRARY=unused)
  set(ELIZA_GPU_LOADER src/platform/vulkan_loader.cpp)
  if(ELIZA_ZIG AND NOT VULKAN_INCLUDE_DIR)
    # zig has its own headers of the system, so it must not search all of /usr/include.
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/include)
    foreach(_folder vulkan vk_video spirv)
      file(CREATE_LINK /usr/include/${_folder} ${CMAKE_CURRENT_BINARY_DIR}/include/${_folder} SYMBOLIC)
    endforeach()
    set(VULKAN_INCLUDE_DIR ${CMAKE_CURRENT_BINARY_DIR}/include)
  endif()
  if(VULKAN_INCLUDE_DIR)
    get_filename_component(_vulkan_prefix ${VULKAN_INCLUDE_DIR} DIRECTORY)
    set(Vulkan_INCLUDE_DIR ${VULKAN_INCLUDE_DIR} CACHE PATH "" FORCE)
    list(APPEND _backend_args -DVulkan_INCLUDE_DIR=${VULKAN_INCLUDE_DIR} -DCMAKE_PREFIX_PATH=${_vulkan_prefix})
  endif()
elseif(ELIZA_BACKEND STREQUAL "metal")
  list(APPEND _backend_args -DGGML_METAL=ON -DGGML_METAL_EMBED_LIBRARY=ON)
elseif(ELIZA_BACKEND STREQUAL "hip")
  list(APPEND _backend_args -DGGML_HIP=ON)
elseif(ELIZA_BACKEND STREQUAL "sycl")
  list(APPEND _backend_args -DGGML_SYCL=ON)
elseif(ELIZA_BACKEND STREQUAL "opencl")
  list(APPEND _backend_args -DGGML_OPENCL=ON)
elseif(ELIZA_BACKEND STREQUAL "blas")
  list(APPEND _backend_args -DGGML_BLAS=ON -DGGML_BLAS_VENDOR=${ELIZA_BLAS_VENDOR})
endif()

# The configuration file of ggml must find the same libraries that ggml was built with.
if(ELIZA_BACKEND STREQUAL "blas")
  set(BLA_VENDOR ${ELIZA_BLAS_VENDOR})
endif()

function(eliza_link_backend)
  if(ELIZA_BACKEND STREQUAL "cuda")
    find_package(CUDAToolkit REQUIRED)
    # The runtime is linked statically and opens the driver at its first use. src/platform/cublas_loader.c opens cuBLAS.
    set_property(TARGET ggml::ggml-cuda PROPERTY INTERFACE_LINK_LIBRARIES
      ggml::ggml-base CUDA::cudart_static ${CMAKE_DL_LIBS})
    set_property(TARGET ggml::ggml-cuda APPEND PROPERTY INTERFACE_LINK_OPTIONS -Wl,--wrap=cudaGetDeviceCount)
    set(_include ${CUDAToolkit_INCLUDE_DIRS})
    set(_libraries ${CUDAToolkit_LIBRARY_DIR})
    if(ELIZA_CUBLAS_DIR)
      list(PREPEND _include ${ELIZA_CUBLAS_DIR}/include)
      set(_libraries ${ELIZA_CUBLAS_DIR}/lib)
    endif()
    list(TRANSFORM _include PREPEND -I)
    set_source_files_properties(${ELIZA_GPU_LOADER} PROPERTIES COMPILE_OPTIONS "${_include}")
    if(SKBUILD)  # in a wheel, cuBLAS may be in the Python package nvidia-cublas
      set(_libraries "$ORIGIN/../../nvidia/cu${CUDAToolkit_VERSION_MAJOR}/lib")
    endif()
    set(ELIZA_RUNTIME_PATH ${_libraries} PARENT_SCOPE)
  elseif(ELIZA_BACKEND STREQUAL "vulkan")
    set_property(TARGET ggml::ggml-vulkan PROPERTY INTERFACE_LINK_LIBRARIES ggml::ggml-base ${CMAKE_DL_LIBS})
    if(VULKAN_INCLUDE_DIR)
      set_source_files_properties(${ELIZA_GPU_LOADER} PROPERTIES COMPILE_OPTIONS "-isystem;${VULKAN_INCLUDE_DIR}")
    endif()
  elseif(ELIZA_BACKEND STREQUAL "sycl")
    set_property(TARGET ggml::ggml-sycl APPEND PROPERTY INTERFACE_LINK_OPTIONS -fsycl)
    find_package(MKL REQUIRED)
    set_property(TARGET ggml::ggml-sycl APPEND PROPERTY INTERFACE_LINK_LIBRARIES MKL::MKL_SYCL::BLAS)
  endif()
endfunction()

# llama.cpp's own server, built from the same source, because both ends must use the same version of the protocol.
function(eliza_add_rpc_server)
  if(ELIZA_RPC)
    add_executable(rpc-server ${LLAMA_CPP_SOURCE_DIR}/tools/rpc/rpc-server.cpp)
    target_link_libraries(rpc-server PRIVATE ggml::ggml)
    target_compile_options(rpc-server PRIVATE -w)
  endif()
endfunction()
