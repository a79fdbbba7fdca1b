#!/usr/bin/env python3
"""List the tools and libraries that a backend's build needs and this machine lacks.

``make cuda`` and the other build targets run this before they compile anything. If everything is
installed, the script prints nothing and returns 0. Otherwise it prints one line that names the
missing tools and how to install them, and returns 1.

    $ python scripts/check_toolchain.py vulkan
    make vulkan: glslc, which compiles shaders, is missing (Debian: apt install glslc)

The script only looks at files and the PATH. It compiles and runs nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OLDEST_VULKAN = (1, 3, 272)
"""The oldest Vulkan headers that llama.cpp's Vulkan backend compiles with."""


@dataclass(frozen=True)
class Machine:
    """Where a machine keeps its tools, headers and libraries.

    Attributes
    ----------
    path
        Folders of programs, in the format of the variable PATH.
    roots
        Prefixes with ``include`` and ``lib`` folders.
    multiarch
        Name of Debian's subfolder of ``lib`` and ``include`` for the architecture; may be empty.
    platform
        A value of ``sys.platform``.
    devices
        The folder of device files.
    variables
        The build's variables, such as ``CUDA_ARCHITECTURES``.
    """

    path: str
    roots: tuple[Path, ...] = (Path("/usr"), Path("/usr/local"))
    multiarch: str = ""
    platform: str = sys.platform
    devices: Path = Path("/dev")
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def this(cls) -> Machine:
        """Return this machine."""
        roots = [Path("/usr"), Path("/usr/local")]
        if sys.platform == "darwin":
            roots += [Path("/opt/homebrew"), Path("/opt/homebrew/opt/openblas")]
        return cls(
            path=os.environ.get("PATH", os.defpath),
            roots=tuple(roots),
            multiarch=str(sysconfig.get_config_var("MULTIARCH") or ""),
            variables=dict(os.environ),
        )

    def program(self, name: str, *more_folders: Path) -> Path | None:
        """Find a program on the PATH, then in the given folders."""
        folders = os.pathsep.join([self.path, *map(str, more_folders)])
        found = shutil.which(name, path=folders)
        return Path(found) if found else None

    def header(self, name: str, *more_folders: Path) -> Path | None:
        """Find a header; the given folders come first."""
        folders = list(more_folders)
        for root in self.roots:
            folders += [root / "include", root / "include" / self.multiarch]
        return next((folder / name for folder in folders if (folder / name).is_file()), None)

    def library(self, name: str, *more_folders: Path) -> Path | None:
        """Find a library by its linker name, such as ``OpenCL``; the given folders come first."""
        folders = list(more_folders)
        for root in self.roots:
            folders += [root / "lib", root / "lib" / self.multiarch, root / "lib64"]
        files = [f"lib{name}{ending}" for ending in (".so", ".dylib", ".tbd", ".a")]
        return next((f / file for f in folders for file in files if (f / file).is_file()), None)

    def folder(self, variable: str) -> Path | None:
        """Return the folder in a variable, or None if the variable is unset or empty."""
        value = self.variables.get(variable, "")
        return Path(value) if value else None


def missing_for_cpu(machine: Machine) -> list[str]:
    if any(machine.program(name) for name in ("c++", "g++", "clang++")):
        return []
    return ["a C++ compiler is missing (Debian: apt install g++)"]


def missing_for_cuda(machine: Machine) -> list[str]:
    nvcc = machine.program("nvcc", *(root / "cuda" / "bin" for root in machine.roots))
    if nvcc is None:
        return [
            "nvcc is missing (install NVIDIA's CUDA toolkit; or run 'make cuda-toolkit', and add"
            " the folder bin of its result to PATH)"
        ]
    missing = []
    toolkits = [root / "cuda" for root in machine.roots]
    given = machine.folder("CUBLAS_DIR")
    if given is not None:
        if machine.header("cublas_v2.h", given / "include") is None:
            missing.append(
                f"CUBLAS_DIR: expected a folder with include/cublas_v2.h; {given} has none"
            )
    elif machine.header("cublas_v2.h", *(each / "include" for each in toolkits)) is None:
        missing.append(
            "cuBLAS is missing (install libcublas-dev in the toolkit's version; or run"
            " 'make cuda-toolkit', and set CUBLAS_DIR to its result)"
        )
    has_gpu = (machine.devices / "nvidia0").exists() or (machine.devices / "dxg").exists()
    if not has_gpu and not machine.variables.get("CUDA_ARCHITECTURES"):
        missing.append(
            "this machine has no NVIDIA GPU (name the compute capabilities to build for, such as"
            ' CUDA_ARCHITECTURES=90 or "80;90")'
        )
    return missing


def missing_for_vulkan(machine: Machine) -> list[str]:
    missing = []
    given = machine.folder("VULKAN_INCLUDE_DIR")
    folders = () if given is None else (given,)
    header = machine.header("vulkan/vulkan_core.h", *folders)
    if given is not None and not (given / "vulkan" / "vulkan_core.h").is_file():
        missing.append(
            f"VULKAN_INCLUDE_DIR: expected a folder with vulkan/vulkan_core.h; {given} has none"
        )
    elif header is None:
        missing.append("the Vulkan headers are missing (Debian: apt install libvulkan-dev)")
    else:
        version = vulkan_version(header.read_text(encoding="utf-8", errors="replace"))
        if version < OLDEST_VULKAN:
            missing.append(
                f"expected Vulkan headers {_dotted(OLDEST_VULKAN)} or newer, got"
                f" {_dotted(version)} (for example, unpack Debian 13's libvulkan-dev and"
                " spirv-headers, and set VULKAN_INCLUDE_DIR to their folder)"
            )
    if machine.header("spirv/unified1/spirv.hpp", *folders) is None:
        missing.append("the SPIR-V headers are missing (Debian: apt install spirv-headers)")
    if machine.program("glslc") is None:
        missing.append("glslc, which compiles shaders, is missing (Debian: apt install glslc)")
    return missing


def missing_for_metal(machine: Machine) -> list[str]:
    if machine.platform != "darwin":
        return ["Metal needs macOS (on this system, use make vulkan or make cuda)"]
    if machine.program("xcrun") is None:
        return ["Apple's command line tools are missing (xcode-select --install)"]
    return []


def missing_for_hip(machine: Machine) -> list[str]:
    rocm = machine.folder("ROCM_PATH") or Path("/opt/rocm")
    missing = []
    if machine.program("hipcc", rocm / "bin") is None:
        missing.append("hipcc is missing (install AMD's ROCm 6.1 or newer; Debian: hipcc)")
    for name in ("hipblas", "rocblas"):
        if machine.header(f"{name}/{name}.h", rocm / "include") is None:
            missing.append(f"{name} is missing (ROCm: {name}-dev; Debian: lib{name}-dev)")
    return missing


def missing_for_sycl(machine: Machine) -> list[str]:
    missing = []
    if machine.program("icpx") is None:
        missing.append(
            "icpx is missing (install Intel's oneAPI Base Toolkit, then source setvars.sh)"
        )
    if machine.folder("MKLROOT") is None:
        missing.append("MKLROOT is not set (oneAPI's setvars.sh sets it)")
    return missing


def missing_for_opencl(machine: Machine) -> list[str]:
    missing = []
    if machine.header("CL/cl.h") is None:
        missing.append("the OpenCL headers are missing (Debian: apt install opencl-headers)")
    if machine.library("OpenCL") is None:
        missing.append("libOpenCL is missing (Debian: apt install ocl-icd-opencl-dev)")
    return missing


def missing_for_blas(machine: Machine) -> list[str]:
    if machine.platform == "darwin":
        return []  # Accelerate is part of the system
    vendor = machine.variables.get("BLAS_VENDOR") or "OpenBLAS"
    if vendor != "OpenBLAS":
        return []  # CMake's FindBLAS searches for other vendors
    missing = []
    folders = [root / "include" / "openblas" for root in machine.roots]
    if machine.header("cblas.h", *folders) is None or machine.library("openblas") is None:
        missing.append("OpenBLAS is missing (Debian: apt install libopenblas-dev)")
    if machine.program("pkg-config") is None:
        missing.append("pkg-config is missing (Debian: apt install pkg-config)")
    return missing


def missing_for_arm64(machine: Machine) -> list[str]:
    if machine.program("aarch64-linux-gnu-g++"):
        return []
    return ["aarch64-linux-gnu-g++ is missing (Debian: apt install g++-aarch64-linux-gnu)"]


def missing_for_windows(machine: Machine) -> list[str]:
    if machine.program("x86_64-w64-mingw32-g++-posix"):
        return []
    return [
        "x86_64-w64-mingw32-g++-posix is missing (Debian: apt install g++-mingw-w64-x86-64-posix)"
    ]


CHECKS: Mapping[str, Callable[[Machine], list[str]]] = {
    "cpu": missing_for_cpu,
    "cuda": missing_for_cuda,
    "vulkan": missing_for_vulkan,
    "metal": missing_for_metal,
    "hip": missing_for_hip,
    "sycl": missing_for_sycl,
    "opencl": missing_for_opencl,
    "blas": missing_for_blas,
    "rpc": missing_for_cpu,
    "arm64": missing_for_arm64,
    "windows": missing_for_windows,
}


def missing_for(backend: str, machine: Machine) -> list[str]:
    """Return a line for each missing tool of a backend, with how to install it."""
    compiler = [] if CHECKS[backend] is missing_for_cpu else missing_for_cpu(machine)
    return compiler + CHECKS[backend](machine)


def vulkan_version(header: str) -> tuple[int, int, int]:
    """Return the version in the text of ``vulkan_core.h``, or zeros if it has none."""
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", header)
    complete = r"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_(?:API_)?VERSION\(([\d, ]+),"
    major_minor = re.search(complete, header)
    if patch is None or major_minor is None:
        return (0, 0, 0)
    # VK_MAKE_API_VERSION takes the variant, 0, as its first argument.
    *_, major, minor = (int(part) for part in major_minor[1].split(","))
    return (major, minor, int(patch[1]))


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def main(arguments: Sequence[str] | None = None, machine: Machine | None = None) -> int:
    parser = argparse.ArgumentParser(description="List the missing requirements of a backend.")
    parser.add_argument("backend", choices=CHECKS)
    options = parser.parse_args(arguments)
    missing = missing_for(options.backend, machine or Machine.this())
    if missing:
        print(f"make {options.backend}: {'; '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
