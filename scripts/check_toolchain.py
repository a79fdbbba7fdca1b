#!/usr/bin/env python3
"""List the tools and headers that a backend's build needs and this machine lacks.

The build targets run this before they compile anything. If everything is installed, the script
prints nothing and returns 0. Otherwise it prints one line that names the missing tools and how to
install them, and returns 1. It only looks at files and the PATH.

    $ python scripts/check_toolchain.py vulkan
    make build BACKEND=vulkan: glslc, which compiles shaders, is missing (Debian: apt install glslc)
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OLDEST_VULKAN = (1, 3, 272)
"""The oldest Vulkan headers that llama.cpp's Vulkan backend compiles with."""

ROOTS = (
    *("/usr", "/usr/local", "/opt/homebrew", "/opt/homebrew/opt/openblas"),
    *("/usr/cuda", "/usr/local/cuda", os.environ.get("ROCM_PATH") or "/opt/rocm"),
)
"""Prefixes with ``bin``, ``include`` and ``lib`` folders."""

# Accelerate is part of macOS, and CMake's FindBLAS searches for other vendors.
HAS_BLAS = sys.platform == "darwin" or os.environ.get("BLAS_VENDOR", "") not in ("", "OpenBLAS")
OPENBLAS = {
    "libopenblas": "OpenBLAS is missing (Debian: apt install libopenblas-dev)",
    "pkg-config": "pkg-config is missing (Debian: apt install pkg-config)",
}
NEEDS = {
    "blas": {} if HAS_BLAS else OPENBLAS,
    "hip": {
        "hipcc": "hipcc is missing (install AMD's ROCm 6.1 or newer; Debian: hipcc)",
        "hipblas/hipblas.h": "hipblas is missing (ROCm: hipblas-dev; Debian: libhipblas-dev)",
        "rocblas/rocblas.h": "rocblas is missing (ROCm: rocblas-dev; Debian: librocblas-dev)",
    },
    "sycl": {
        "icpx": "icpx is missing (install Intel's oneAPI Base Toolkit, then source setvars.sh)",
    },
    "opencl": {
        "CL/cl.h": "the OpenCL headers are missing (Debian: apt install opencl-headers)",
        "libOpenCL": "libOpenCL is missing (Debian: apt install ocl-icd-opencl-dev)",
    },
    "arm64": {
        "aarch64-linux-gnu-g++": "aarch64-linux-gnu-g++ is missing"
        " (Debian: apt install g++-aarch64-linux-gnu)",
    },
    "windows": {
        "x86_64-w64-mingw32-g++-posix": "x86_64-w64-mingw32-g++-posix is missing"
        " (Debian: apt install g++-mingw-w64-x86-64-posix)",
    },
}
"""The programs, headers and libraries of a backend, and the line that is printed without them."""


def find(name: str, folder: str = "") -> Path | None:
    """Find a program, a header, or a library such as ``libOpenCL``; `folder` comes first."""
    machine = str(sysconfig.get_config_var("MULTIARCH") or "")
    places = [Path(folder)] if folder else []
    for root, each, more in itertools.product(ROOTS, ("include", "lib", "lib64"), ("", machine)):
        places.append(Path(root, each, more))
    files = itertools.product(places, ("", ".so", ".dylib", ".tbd", ".a"))
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *(f"{e}/bin" for e in ROOTS)])
    program = shutil.which(name, path=path)
    if program is not None:
        return Path(program)
    return next((file for place, end in files if (file := place / f"{name}{end}").is_file()), None)


def cuda() -> Iterator[str]:
    if not find("nvcc"):
        yield (
            "nvcc is missing (install NVIDIA's CUDA toolkit; or run 'make cuda-toolkit', and add"
            " the folder bin of its result to PATH)"
        )
        return
    given = os.environ.get("CUBLAS_DIR")
    if given and not Path(given, "include", "cublas_v2.h").is_file():
        yield f"CUBLAS_DIR: expected a folder with include/cublas_v2.h; {given} has none"
    elif not given and not find("cublas_v2.h"):
        yield (
            "cuBLAS is missing (install libcublas-dev in the toolkit's version; or run"
            " 'make cuda-toolkit', and set CUBLAS_DIR to its result)"
        )
    has_gpu = Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()
    if not has_gpu and not os.environ.get("CUDA_ARCHITECTURES"):
        yield (
            "this machine has no NVIDIA GPU (name the compute capabilities to build for, such as"
            ' CUDA_ARCHITECTURES=90 or "80;90")'
        )


def vulkan() -> Iterator[str]:
    given = os.environ.get("VULKAN_INCLUDE_DIR", "")
    header = find("vulkan/vulkan_core.h", given)
    if given and not Path(given, "vulkan", "vulkan_core.h").is_file():
        wanted = "a folder with vulkan/vulkan_core.h"
        yield f"VULKAN_INCLUDE_DIR: expected {wanted}; {given} has none"
    elif header is None:
        yield "the Vulkan headers are missing (Debian: apt install libvulkan-dev)"
    elif (version := vulkan_version(header.read_text(errors="replace"))) < OLDEST_VULKAN:
        oldest, got = (".".join(map(str, each)) for each in (OLDEST_VULKAN, version))
        yield (
            f"expected Vulkan headers {oldest} or newer, got {got} (for example, unpack Debian"
            " 13's libvulkan-dev and spirv-headers, and set VULKAN_INCLUDE_DIR to their folder)"
        )
    if not find("spirv/unified1/spirv.hpp", given):
        yield "the SPIR-V headers are missing (Debian: apt install spirv-headers)"
    if not find("glslc"):
        yield "glslc, which compiles shaders, is missing (Debian: apt install glslc)"


def vulkan_version(header: str) -> tuple[int, ...]:
    """Return the version in the text of ``vulkan_core.h``, or zeros if it has none."""
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", header)
    complete = re.search(r"VK_HEADER_VERSION_COMPLETE VK_MAKE_\w*VERSION\(([\d, ]+),", header)
    if patch is None or complete is None:
        return (0, 0, 0)
    # VK_MAKE_API_VERSION takes the variant, 0, as its first argument.
    return (*map(int, complete[1].split(",")[-2:]), int(patch[1]))


def missing_for(backend: str) -> Iterator[str]:
    """Yield a line for each missing tool of a backend, with how to install it."""
    if not any(map(find, ("c++", "g++", "clang++"))):
        yield "a C++ compiler is missing (Debian: apt install g++)"
    for name, line in NEEDS.get(backend, {}).items():
        if not find(name):
            yield line
    if backend == "cuda":
        yield from cuda()
    elif backend == "vulkan":
        yield from vulkan()
    elif backend == "sycl" and not os.environ.get("MKLROOT"):
        yield "MKLROOT is not set (oneAPI's setvars.sh sets it)"
    elif backend == "metal" and sys.platform != "darwin":
        yield "Metal needs macOS (on this system, use BACKEND=vulkan or cuda)"
    elif backend == "metal" and not find("xcrun"):
        yield "Apple's command line tools are missing (xcode-select --install)"


if __name__ == "__main__":
    if missing := "; ".join(missing_for(sys.argv[1])):
        sys.exit(f"make build BACKEND={sys.argv[1]}: {missing}")
