#!/usr/bin/env python3
"""Say what a backend's build needs and this machine lacks, before anything is compiled.

``make cuda`` and its like run this first. It prints nothing and returns 0 where everything is
there; else it prints one line that names what is missing and what to install, and returns 1.

    $ python scripts/check_toolchain.py vulkan
    make vulkan: glslc, which compiles shaders, is missing (Debian: apt install glslc)

It only looks at files and the PATH: nothing is compiled or run.
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
"""What llama.cpp's Vulkan backend is written against."""


@dataclass(frozen=True)
class Machine:
    """Where a machine keeps its tools, headers and libraries.

    Attributes
    ----------
    path
        Folders of programs, as the variable PATH has them.
    roots
        Prefixes that hold ``include`` and ``lib`` folders.
    multiarch
        The name of the folder that Debian puts below ``lib`` and ``include``; may be empty.
    platform
        As ``sys.platform`` names it.
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
        """Return the machine this runs on."""
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
        """Return a program of the PATH, or else of one of the folders."""
        folders = os.pathsep.join([self.path, *map(str, more_folders)])
        found = shutil.which(name, path=folders)
        return Path(found) if found else None

    def header(self, name: str, *more_folders: Path) -> Path | None:
        """Return a header, the given folders first."""
        folders = list(more_folders)
        for root in self.roots:
            folders += [root / "include", root / "include" / self.multiarch]
        return next((folder / name for folder in folders if (folder / name).is_file()), None)

    def library(self, name: str, *more_folders: Path) -> Path | None:
        """Return a library that a linker finds by its short name, such as ``OpenCL``."""
        folders = list(more_folders)
        for root in self.roots:
            folders += [root / "lib", root / "lib" / self.multiarch, root / "lib64"]
        files = [f"lib{name}{ending}" for ending in (".so", ".dylib", ".tbd", ".a")]
        return next((f / file for f in folders for file in files if (f / file).is_file()), None)

    def folder(self, variable: str) -> Path | None:
        """Return the folder that a variable names, or None if it is unset or empty."""
        value = self.variables.get(variable, "")
        return Path(value) if value else None


def missing_for_cpu(machine: Machine) -> list[str]:
    if any(machine.program(name) for name in ("c++", "g++", "clang++")):
        return []
    return ["a C++ compiler is missing (Debian: apt install g++)"]


def missing_for_cuda(machine: Machine) -> list[str]:
    nvcc = machine.program("nvcc", *(root / "cuda" / "bin" for root in machine.roots))
    if nvcc is None:
        return ["nvcc is missing (install NVIDIA's CUDA toolkit; Debian: nvidia-cuda-toolkit)"]
    missing = []
    toolkits = [root / "cuda" for root in machine.roots]
    given = machine.folder("CUBLAS_DIR")
    if given is not None:
        if machine.header("cublas_v2.h", given / "include") is None:
            missing.append(f"CUBLAS_DIR: there is no include/cublas_v2.h in {given}")
    elif machine.header("cublas_v2.h", *(each / "include" for each in toolkits)) is None:
        missing.append(
            "cuBLAS is missing (install libcublas-dev of the toolkit's version, or unpack the wheel"
            " nvidia-cublas and give its folder of include and lib as CUBLAS_DIR=DIR)"
        )
    has_gpu = (machine.devices / "nvidia0").exists() or (machine.devices / "dxg").exists()
    if not has_gpu and not machine.variables.get("CUDA_ARCHITECTURES"):
        missing.append(
            "there is no NVIDIA GPU here to build for (say which with CUDA_ARCHITECTURES, such as"
            ' CUDA_ARCHITECTURES=90 or "80;90")'
        )
    return missing


def missing_for_vulkan(machine: Machine) -> list[str]:
    missing = []
    given = machine.folder("VULKAN_INCLUDE_DIR")
    folders = () if given is None else (given,)
    header = machine.header("vulkan/vulkan_core.h", *folders)
    if given is not None and not (given / "vulkan" / "vulkan_core.h").is_file():
        missing.append(f"VULKAN_INCLUDE_DIR: there is no vulkan/vulkan_core.h in {given}")
    elif header is None:
        missing.append("the Vulkan headers are missing (Debian: apt install libvulkan-dev)")
    else:
        version = vulkan_version(header.read_text(encoding="utf-8", errors="replace"))
        if version < OLDEST_VULKAN:
            missing.append(
                f"the Vulkan headers are {_dotted(version)} and {_dotted(OLDEST_VULKAN)} or"
                " newer is needed (unpack Debian 13's libvulkan-dev and spirv-headers, say,"
                " and give their folder as VULKAN_INCLUDE_DIR=DIR)"
            )
    if machine.header("spirv/unified1/spirv.hpp", *folders) is None:
        missing.append("the SPIR-V headers are missing (Debian: apt install spirv-headers)")
    if machine.library("vulkan") is None:
        missing.append("libvulkan is missing (Debian: apt install libvulkan-dev)")
    if machine.program("glslc") is None:
        missing.append("glslc, which compiles shaders, is missing (Debian: apt install glslc)")
    return missing


def missing_for_metal(machine: Machine) -> list[str]:
    if machine.platform != "darwin":
        return ["Metal is there on macOS alone (on this system: make vulkan or make cuda)"]
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
        return []  # CMake knows the others' names and says what it does not find
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
}


def missing_for(backend: str, machine: Machine) -> list[str]:
    """Return what the build of a backend lacks, each with what to do about it."""
    compiler = [] if CHECKS[backend] is missing_for_cpu else missing_for_cpu(machine)
    return compiler + CHECKS[backend](machine)


def vulkan_version(header: str) -> tuple[int, int, int]:
    """Return the version that the text of ``vulkan_core.h`` states; zeros where it states none."""
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", header)
    complete = r"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_(?:API_)?VERSION\(([\d, ]+),"
    major_minor = re.search(complete, header)
    if patch is None or major_minor is None:
        return (0, 0, 0)
    # VK_MAKE_API_VERSION has the variant, 0, in front.
    *_, major, minor = (int(part) for part in major_minor[1].split(","))
    return (major, minor, int(patch[1]))


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def main(arguments: Sequence[str] | None = None, machine: Machine | None = None) -> int:
    parser = argparse.ArgumentParser(description="Say what the build of a backend lacks here.")
    parser.add_argument("backend", choices=CHECKS)
    options = parser.parse_args(arguments)
    missing = missing_for(options.backend, machine or Machine.this())
    if missing:
        print(f"make {options.backend}: {'; '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
