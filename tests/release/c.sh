#!/bin/sh
# The first hour of a C or elizaOS developer: unpack the C archive, and link its example in every way.
#
#     tests/release/c.sh FOLDER    FOLDER has eliza-ffi-c-*.tar.gz; needs a C compiler, pkg-config and CMake
#
# Takes the archive for glibc, or without one the archive for musl, which needs the compiler musl-gcc.
set -eu
export CC="${CC:-cc}"
archive=$(realpath "$1"/eliza-ffi-c-*-linux-"$(uname -m)".tar.gz)
if ! [ -e "$archive" ]; then
    archive=$(realpath "$1"/eliza-ffi-c-*-musllinux-"$(uname -m)".tar.gz)
    CC=musl-gcc
fi
cd "$(mktemp -d)"
tar xzf "$archive"
cd eliza-ffi-c-*
prefix=$PWD
model=share/eliza-tiny.gguf
example=share/examples/choose.c
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

echo "linked with pkg-config"
# shellcheck disable=SC2046 # split into one word per flag
"$CC" -o choose $example $(pkg-config --cflags --libs elizainference) -Wl,-rpath,"$prefix/lib"
./choose $model | tee shared.txt
grep -q '^chosen: STOP' shared.txt

echo "linked statically"
# shellcheck disable=SC2046
"$CC" -o choose_static $example $(pkg-config --static --cflags --libs elizainference | sed s/-lelizainference/-l:libelizainference.a/)
./choose_static $model | cmp - shared.txt

echo "linked with CMake"
cmake -S share/examples -B build -DCMAKE_PREFIX_PATH="$prefix" > cmake.log || { cat cmake.log; exit 1; }
cmake --build build >> cmake.log || { cat cmake.log; exit 1; }
build/choose $model | cmp - shared.txt

echo "opened by name, as elizaOS opens it"
cat > loaded.c << 'C'
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char ** argv) {
    const char * const families[] = {"eliza_inference_llm_stream_supported", "eliza_inference_llm_mtp_supported",
                                     "eliza_inference_llm_kv_quant_supported", "eliza_inference_tokenize_supported"};
    void * library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror());
    for (int i = 0; i < 4; i++) {
        int (*supported)(void) = (int (*)(void))dlsym(library, families[i]);
        if (supported == NULL || supported() != 1) return fprintf(stderr, "%s\n", families[i]);
    }
    const char * (*version)(void) = (const char * (*)(void))dlsym(library, "eliza_inference_abi_version");
    return version == NULL || puts(version()) < 0;
}
C
"$CC" -o loaded loaded.c -ldl
test "$(./loaded "$prefix/lib/libelizainference.so")" = 12
