# Builds llama.cpp as static libraries, once per source, backend, compiler and configuration, in the user's
# cache, so that building this project again takes seconds.
#
# Sets LLAMA_CPP_SOURCE_DIR and LLAMA_CPP_COMMIT and defines the imported target `llama`.

find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
set(_fetch ${CMAKE_CURRENT_LIST_DIR}/../../scripts/fetch_llama_cpp.py)

# Sets `variable` to the output of the script.
function(eliza_ask_fetch_script variable)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${_fetch} ${ARGN}
    OUTPUT_VARIABLE _answer OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _result)
  if(NOT _result EQUAL 0)
    message(FATAL_ERROR "Cannot get the llama.cpp source; see the message above.")
  endif()
  set(${variable} ${_answer} PARENT_SCOPE)
endfunction()

if(ELIZA_BUILD_TESTS)
  eliza_ask_fetch_script(LLAMA_CPP_SOURCE_DIR --with-models)
else()
  eliza_ask_fetch_script(LLAMA_CPP_SOURCE_DIR)
endif()
eliza_ask_fetch_script(_cache --print-cache-dir)
message(STATUS "llama.cpp source: ${LLAMA_CPP_SOURCE_DIR}")

# A user's own checkout may change between two builds; the pinned tree does not.
if(DEFINED ENV{LLAMA_CPP_SOURCE} AND NOT "$ENV{LLAMA_CPP_SOURCE}" STREQUAL "")
  set(_pinned FALSE)
  execute_process(COMMAND git -C ${LLAMA_CPP_SOURCE_DIR} rev-parse --short=9 HEAD
    OUTPUT_VARIABLE LLAMA_CPP_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT LLAMA_CPP_COMMIT)
    set(LLAMA_CPP_COMMIT "unknown")
  endif()
else()
  set(_pinned TRUE)
  eliza_ask_fetch_script(LLAMA_CPP_COMMIT --print-commit)
endif()

if(CMAKE_CROSSCOMPILING)
  set(ELIZA_NATIVE OFF)  # the library will run on a different CPU
endif()
# llama.cpp calls its kernels for attention and products in C and defines them in C++. Renaming them in C changes only the
# calls, which then reach our kernels (CpuKernels.cmake).
set(_c_only " -Dggml_compute_forward_flash_attn_ext=eliza_compute_attention -Dllamafile_sgemm=eliza_multiply")
set(_flags "-ffunction-sections -fdata-sections")
# llama.cpp configures a thread's AMX tiles once. GCC 12 stores only 8 of the configuration's 64 bytes, and another library
# of the process, such as oneDNN in PyTorch, may release the tiles: the next product ends the process.
string(APPEND _flags " -U__AMX_INT8__")
set(_vector_moves "")
if(ELIZA_ZIG AND NOT APPLE AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  string(APPEND _flags " -mcpu=generic+v8_2a+dotprod")  # zig's equivalent of -march
endif()
if(ELIZA_ZIG AND APPLE)
  string(APPEND _flags " -fvisibility=hidden")  # zig's linker does not support a list of exported symbols
endif()
if(MINGW)
  # Windows aligns the stack to 16 bytes, and GCC does not align it further for 32-byte AVX values (GCC bug 54412).
  set(_vector_moves -Wa,-muse-unaligned-vector-move)
  string(APPEND _flags " ${_vector_moves}")
  string(APPEND _c_only " -include ${CMAKE_CURRENT_SOURCE_DIR}/src/platform/thread_power_throttling.h")
endif()
set(_args
  -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DCMAKE_INSTALL_LIBDIR=lib
  -DCMAKE_C_FLAGS=${_flags}${_c_only}
  -DCMAKE_CXX_FLAGS=${_flags}
  -DBUILD_SHARED_LIBS=OFF
  -DLLAMA_BUILD_COMMON=OFF
  -DLLAMA_BUILD_APP=OFF
  -DLLAMA_BUILD_TOOLS=OFF
  -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF
  -DLLAMA_BUILD_SERVER=OFF
  -DLLAMA_OPENSSL=OFF
  -DLLAMA_BUILD_COMMIT=${LLAMA_CPP_COMMIT}
  -DLLAMA_BUILD_NUMBER=0
  # Use ggml's own thread pool, which we attach. It needs no libgomp and no pool per calling thread.
  -DGGML_OPENMP=OFF
  -DGGML_NATIVE=${ELIZA_NATIVE})
if(NOT ELIZA_NATIVE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND _args -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
elseif(NOT ELIZA_NATIVE AND NOT ELIZA_ZIG AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND _args -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod)
endif()
include(Backends)
list(APPEND _args ${_backend_args})
# For cross-compilation the toolchain file selects the compiler. The NDK's file and ours for zig need more settings.
set(_toolchain "")
if(CMAKE_TOOLCHAIN_FILE)
  file(SHA256 ${CMAKE_TOOLCHAIN_FILE} _toolchain)
  foreach(_variable CMAKE_TOOLCHAIN_FILE ANDROID_ABI ANDROID_PLATFORM ELIZA_ZIG ELIZA_ZIG_TARGET)
    if(DEFINED ${_variable})
      list(APPEND _args -D${_variable}=${${_variable}})
    endif()
  endforeach()
endif()
list(APPEND _args ${LLAMA_CPP_CMAKE_ARGS})

# With ELIZA_NATIVE the CPU is part of the key, because a cache in a shared home directory may be used by machines
# with different CPUs.
set(_cpu "")
if(ELIZA_NATIVE AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo _cpu REGEX "^(model name|flags|Features)" LIMIT_COUNT 2)
endif()
# A compiler may have several names: cc, gcc, gcc-12. Zig is in a virtual environment, of which there may be
# many. This checkout may be one of many, too.
file(REAL_PATH ${CMAKE_CXX_COMPILER} _compiler)
string(REPLACE "${CMAKE_CURRENT_SOURCE_DIR}/" "" _key_args "${_args}")
if(ELIZA_ZIG)
  set(_compiler zig)
  list(FILTER _key_args EXCLUDE REGEX "^-D(ELIZA_ZIG|CMAKE_TOOLCHAIN_FILE)=")
endif()
string(SHA256 _key
  "${_toolchain}${LLAMA_CPP_SOURCE_DIR};${_compiler};${CMAKE_CXX_COMPILER_ID};${CMAKE_CXX_COMPILER_VERSION};${_key_args};${_cpu}")
string(SUBSTRING ${_key} 0 12 _key)

set(LLAMA_CPP_INSTALL "" CACHE PATH "a llama.cpp that another build of this project has installed from the same source, to link unchanged")

set(_build ${_cache}/build/llama.cpp-${LLAMA_CPP_COMMIT}-${ELIZA_BACKEND}-${_key})
set(_prefix ${_build}/install)

# Runs one command. On failure, prints the errors in its output and stops.
function(eliza_llama_cpp_step)
  cmake_parse_arguments(PARSE_ARGV 0 _step "" "" "")  # ARGN would split an argument at its semicolons
  set(_log ${_build}/last-step.log)
  execute_process(COMMAND ${_step_UNPARSED_ARGUMENTS} OUTPUT_FILE ${_log} ERROR_FILE ${_log} RESULT_VARIABLE _result)
  if(NOT _result EQUAL 0)
    file(STRINGS ${_log} _errors REGEX "rror|FAILED")
    list(JOIN _errors "\n" _errors)
    message(FATAL_ERROR "building llama.cpp failed:\n${_errors}\n(full log: ${_log})")
  endif()
endfunction()

set(_jobs $ENV{JOBS})
if(NOT _jobs)
  cmake_host_system_information(RESULT _jobs QUERY NUMBER_OF_LOGICAL_CORES)
endif()

if(LLAMA_CPP_INSTALL)
  cmake_path(GET LLAMA_CPP_INSTALL PARENT_PATH _build)
  set(_prefix ${LLAMA_CPP_INSTALL})
endif()
file(MAKE_DIRECTORY ${_build})
file(LOCK ${_build}.lock GUARD FILE TIMEOUT 3600)
if(NOT LLAMA_CPP_INSTALL AND (NOT _pinned OR NOT EXISTS ${_build}/complete))
  message(STATUS "Building llama.cpp ${LLAMA_CPP_COMMIT} (${ELIZA_BACKEND}) into ${_build}; this takes a few minutes")
  find_program(_ninja ninja)
  if(_ninja)
    list(PREPEND _args -G Ninja -DCMAKE_MAKE_PROGRAM=${_ninja})
  endif()
  eliza_llama_cpp_step(${CMAKE_COMMAND} -S ${LLAMA_CPP_SOURCE_DIR} -B ${_build}/tree
    -DCMAKE_INSTALL_PREFIX=${_prefix}
    -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${_args})
  eliza_llama_cpp_step(${CMAKE_COMMAND} --build ${_build}/tree --parallel ${_jobs})
  eliza_llama_cpp_step(${CMAKE_COMMAND} --install ${_build}/tree)
  file(TOUCH ${_build}/complete)
  if(_pinned)
    file(REMOVE_RECURSE ${_build}/tree)
  endif()
endif()
file(LOCK ${_build}.lock RELEASE)

# An earlier configuration of this build folder may have found another build of llama.cpp.
get_cmake_property(_variables CACHE_VARIABLES)
foreach(_variable IN LISTS _variables)
  string(FIND "$CACHE{${_variable}}" "${_cache}/build/llama.cpp-" _in_cache)
  string(FIND "$CACHE{${_variable}}" "${_build}/" _in_this_build)
  if(_in_cache EQUAL 0 AND NOT _in_this_build EQUAL 0)
    unset(${_variable} CACHE)
  endif()
endforeach()
set(ggml_DIR ${_prefix}/lib/cmake/ggml)
find_package(llama REQUIRED CONFIG PATHS ${_prefix}/lib/cmake/llama NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
eliza_link_backend()

# Without the renamed call, our attention kernel would silently be left out.
file(GLOB _ggml_cpu ${_prefix}/lib/*ggml-cpu*)
list(GET _ggml_cpu 0 _ggml_cpu)
file(STRINGS ${_ggml_cpu} _call REGEX eliza_compute_attention LIMIT_COUNT 1)
if(NOT _call)
  message(FATAL_ERROR "${_ggml_cpu} does not call eliza_compute_attention: llama.cpp calls its attention kernel in another way than from C, or other settings of CMAKE_C_FLAGS have replaced those of LlamaCpp.cmake")
endif()

# Installs the licences of the code that is linked into the library: llama.cpp, and its copy of nlohmann/json.
function(eliza_install_licenses folder)
  install(FILES ${LLAMA_CPP_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME LICENSE.llama.cpp)
  install(FILES ${LLAMA_CPP_SOURCE_DIR}/licenses/LICENSE-jsonhpp DESTINATION ${folder} RENAME LICENSE.nlohmann-json)
endfunction()
