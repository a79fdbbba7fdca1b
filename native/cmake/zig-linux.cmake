# Linux with musl, or with an older glibc than this machine's, for x86-64 or 64-bit Arm. Used to build releases. The
# compiler is the clang in the Python package `ziglang`, which includes the symbols of every glibc version, musl, and a
# C++ runtime to link.
#
#   ELIZA_ZIG         path of the program zig
#   ELIZA_ZIG_TARGET  the processor, x86_64 or aarch64, and the C library: -linux-gnu.2.28 or -linux-musl

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ELIZA_ZIG ELIZA_ZIG_TARGET)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "${ELIZA_ZIG_TARGET}")
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${ELIZA_ZIG} cc -target ${ELIZA_ZIG_TARGET})
set(CMAKE_CXX_COMPILER ${ELIZA_ZIG} c++ -target ${ELIZA_ZIG_TARGET})
# This machine's `ar` may support only its own object files.
foreach(_language C CXX)
  set(CMAKE_${_language}_ARCHIVE_CREATE "${ELIZA_ZIG} ar qc <TARGET> <OBJECTS>")
  set(CMAKE_${_language}_ARCHIVE_APPEND "${ELIZA_ZIG} ar q <TARGET> <OBJECTS>")
  set(CMAKE_${_language}_ARCHIVE_FINISH "${ELIZA_ZIG} ranlib <TARGET>")
endforeach()
