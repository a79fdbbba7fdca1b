#!/usr/bin/env python3
"""List the tools and headers that a backend's build needs and this machine lacks.

The build targets run this before they compile anything. If everything is installed, the script
prints nothing and returns 0. Otherwise it prints one line that names the missing tools and how to
install them, and returns 1. It only looks at files and the PATH.

    $ python scripts/check_toolchain.py vulkan
    make build BACKEND=vulkan: glslc, which compiles shaders, is missing (Debian: apt install glslc)
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

OLDEST_VULKAN = (1, 3, 272)
"""The oldest Vulkan headers that llama.cpp's Vulkan backend compiles with."""

ROOTS = ["/usr", "/usr/local", "/opt/homebrew", "/opt/homebrew/opt/openblas"]
"""Prefixes with ``include`` and ``lib`` folders."""

Environment = Mapping[str, str]


def program(variables: Environment, *names: str, folder: str = "") -> bool:
    """Return whether one of the programs is on the PATH or in the folder."""
    path = os.pathsep.join([variables.get("PATH", os.defpath), folder])
    return any(shutil.which(name, path=path) for name in names)


def found(name: str, *folders: str | Path) -> Path | None:
    """Find a header, or a library such as ``libOpenCL``; the given folders come first."""
    endings = ("",) if name.endswith((".h", ".hpp")) else (".so", ".dylib", ".tbd", ".a")
    machine = str(sysconfig.get_config_var("MULTIARCH") or "")
    places = [Path(folder) for folder in folders]
    for root in map(Path, ROOTS):
        places += [
            root / each / more for each in ("include", "lib", "lib64") for more in ("", machine)
        ]
    files = (place / f"{name}{ending}" for place in places for ending in endings)
    return next((file for file in files if file.is_file()), None)


def cuda(variables: Environment) -> Iterator[str]:
    toolkits = [f"{root}/cuda" for root in ROOTS]
    if not program(variables, "nvcc", folder=os.pathsep.join(f"{each}/bin" for each in toolkits)):
        yield (
            "nvcc is missing (install NVIDIA's CUDA toolkit; or run 'make cuda-toolkit', and add"
            " the folder bin of its result to PATH)"
        )
        return
    given = variables.get("CUBLAS_DIR")
    if given and not Path(given, "include", "cublas_v2.h").is_file():
        yield f"CUBLAS_DIR: expected a folder with include/cublas_v2.h; {given} has none"
    elif not given and not found("cublas_v2.h", *(f"{each}/include" for each in toolkits)):
        yield (
            "cuBLAS is missing (install libcublas-dev in the toolkit's version; or run"
            " 'make cuda-toolkit', and set CUBLAS_DIR to its result)"
        )
    has_gpu = Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()
    if not has_gpu and not variables.get("CUDA_ARCHITECTURES"):
        yield (
            "this machine has no NVIDIA GPU (name the compute capabilities to build for, such as"
            ' CUDA_ARCHITECTURES=90 or "80;90")'
        )


def vulkan(variables: Environment) -> Iterator[str]:
    given = [folder for folder in [variables.get("VULKAN_INCLUDE_DIR")] if folder]
    header = found("vulkan/vulkan_core.h", *given)
    if given and not Path(given[0], "vulkan", "vulkan_core.h").is_file():
        wanted = "a folder with vulkan/vulkan_core.h"
        yield f"VULKAN_INCLUDE_DIR: expected {wanted}; {given[0]} has none"
    elif header is None:
        yield "the Vulkan headers are missing (Debian: apt install libvulkan-dev)"
    elif (version := vulkan_version(header.read_text(errors="replace"))) < OLDEST_VULKAN:
        oldest, got = (".".join(map(str, each)) for each in (OLDEST_VULKAN, version))
        yield (
            f"expected Vulkan headers {oldest} or newer, got {got} (for example, unpack Debian"
            " 13's libvulkan-dev and spirv-headers, and set VULKAN_INCLUDE_DIR to their folder)"
        )
    if not found("spirv/unified1/spirv.hpp", *given):
        yield "the SPIR-V headers are missing (Debian: apt install spirv-headers)"
    if not program(variables, "glslc"):
        yield "glslc, which compiles shaders, is missing (Debian: apt install glslc)"


def vulkan_version(header: str) -> tuple[int, int, int]:
    """Return the version in the text of ``vulkan_core.h``, or zeros if it has none."""
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", header)
    complete = re.search(r"VK_HEADER_VERSION_COMPLETE VK_MAKE_\w*VERSION\(([\d, ]+),", header)
    if patch is None or complete is None:
        return (0, 0, 0)
    # VK_MAKE_API_VERSION takes the variant, 0, as its first argument.
    *_, major, minor = (int(part) for part in complete[1].split(","))
    return (major, minor, int(patch[1]))


def metal(variables: Environment) -> Iterator[str]:
    if sys.platform != "darwin":
        yield "Metal needs macOS (on this system, use BACKEND=vulkan or cuda)"
    elif not program(variables, "xcrun"):
        yield "Apple's command line tools are missing (xcode-select --install)"


def hip(variables: Environment) -> Iterator[str]:
    rocm = variables.get("ROCM_PATH") or "/opt/rocm"
    if not program(variables, "hipcc", folder=f"{rocm}/bin"):
        yield "hipcc is missing (install AMD's ROCm 6.1 or newer; Debian: hipcc)"
    for name in ("hipblas", "rocblas"):
        if not found(f"{name}/{name}.h", f"{rocm}/include"):
            yield f"{name} is missing (ROCm: {name}-dev; Debian: lib{name}-dev)"


def sycl(variables: Environment) -> Iterator[str]:
    if not program(variables, "icpx"):
        yield "icpx is missing (install Intel's oneAPI Base Toolkit, then source setvars.sh)"
    if not variables.get("MKLROOT"):
        yield "MKLROOT is not set (oneAPI's setvars.sh sets it)"


def opencl(variables: Environment) -> Iterator[str]:
    if not found("CL/cl.h"):
        yield "the OpenCL headers are missing (Debian: apt install opencl-headers)"
    if not found("libOpenCL"):
        yield "libOpenCL is missing (Debian: apt install ocl-icd-opencl-dev)"


def blas(variables: Environment) -> Iterator[str]:
    # Accelerate is part of macOS, and CMake's FindBLAS searches for other vendors.
    if sys.platform == "darwin" or variables.get("BLAS_VENDOR") not in (None, "", "OpenBLAS"):
        return
    folders = [f"{root}/include/openblas" for root in ROOTS]
    if not found("cblas.h", *folders) or not found("libopenblas"):
        yield "OpenBLAS is missing (Debian: apt install libopenblas-dev)"
    if not program(variables, "pkg-config"):
        yield "pkg-config is missing (Debian: apt install pkg-config)"


def _cross(compiler: str, package: str) -> Callable[[Environment], Iterator[str]]:
    def check(variables: Environment) -> Iterator[str]:
        if not program(variables, compiler):
            yield f"{compiler} is missing (Debian: apt install {package})"

    return check


CHECKS: Mapping[str, Callable[[Environment], Iterator[str]]] = {
    "cpu": lambda variables: iter(()),
    "rpc": lambda variables: iter(()),
    **{check.__name__: check for check in (cuda, vulkan, metal, hip, sycl, opencl, blas)},
    "arm64": _cross("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
    "windows": _cross("x86_64-w64-mingw32-g++-posix", "g++-mingw-w64-x86-64-posix"),
}


def missing_for(backend: str, variables: Environment) -> list[str]:
    """Return a line for each missing tool of a backend, with how to install it."""
    has_compiler = program(variables, "c++", "g++", "clang++")
    compiler = [] if has_compiler else ["a C++ compiler is missing (Debian: apt install g++)"]
    return [*compiler, *CHECKS[backend](variables)]


def main() -> int:
    backend = sys.argv[1]
    missing = missing_for(backend, os.environ)
    if missing:
        print(f"make build BACKEND={backend}: {'; '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
