# 64-bit Windows, with Debian's cross-compiler (g++-mingw-w64-x86-64-posix), and wine to run the programs.

set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-w64-mingw32)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)
