# macOS on arm64 or x86-64, without Apple's tools. The compiler is the clang in the Python package `ziglang`, which
# includes the symbols of macOS's system library. It has no headers of Metal and Accelerate.
#
#   ELIZA_ZIG         path of the program zig
#   ELIZA_ZIG_TARGET  aarch64-macos.11.0 or x86_64-macos.11.0

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ELIZA_ZIG ELIZA_ZIG_TARGET)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "${ELIZA_ZIG_TARGET}")
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_C_COMPILER ${ELIZA_ZIG} cc -target ${ELIZA_ZIG_TARGET})
set(CMAKE_CXX_COMPILER ${ELIZA_ZIG} c++ -target ${ELIZA_ZIG_TARGET})
# This machine's `ar` may support only its own object files.
foreach(_language C CXX)
  set(CMAKE_${_language}_ARCHIVE_CREATE "${ELIZA_ZIG} ar qc <TARGET> <OBJECTS>")
  set(CMAKE_${_language}_ARCHIVE_APPEND "${ELIZA_ZIG} ar q <TARGET> <OBJECTS>")
  set(CMAKE_${_language}_ARCHIVE_FINISH "${ELIZA_ZIG} ranlib <TARGET>")
endforeach()
set(CMAKE_INSTALL_NAME_TOOL "install_name_tool not needed")  # CMake requires one, and calls it only to change paths
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_FIND_FRAMEWORK NEVER)
foreach(_feature METAL ACCELERATE BLAS)
  set(GGML_${_feature} OFF CACHE BOOL "")
endforeach()
