"""Before a build, one line names the tools and headers that a backend needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_toolchain import CHECKS, Machine, main, missing_for

NEW_HEADER = """
#define VK_HEADER_VERSION 309
#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that represents a machine with only a C++ compiler."""
    add(tmp_path, "bin/g++")
    return tmp_path


def add(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def machine(root: Path, **variables: str) -> Machine:
    return Machine(
        path=str(root / "bin"),
        roots=(root / "usr",),
        multiarch="x86_64-linux-gnu",
        platform="linux",
        devices=root / "dev",
        variables={"ROCM_PATH": str(root / "rocm"), **variables},
    )


@pytest.mark.parametrize("backend", sorted(set(CHECKS) - {"cpu", "rpc"}))
def test_a_machine_without_tools_gets_one_line(
    root: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([backend], machine(root)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"make {backend}: ") and err.count("\n") == 1


def test_cuda_needs_nvcc_cublas_and_a_gpu_or_an_architecture(root: Path) -> None:
    assert "nvcc is missing" in missing_for("cuda", machine(root))[0]
    add(root, "bin/nvcc")
    no_cublas, no_gpu = missing_for("cuda", machine(root))
    assert "cuBLAS is missing" in no_cublas and "CUDA_ARCHITECTURES=90" in no_gpu
    add(root, "usr/cuda/include/cublas_v2.h")
    assert missing_for("cuda", machine(root, CUDA_ARCHITECTURES="90")) == []


def test_vulkan_needs_headers_and_glslc_but_not_libvulkan(root: Path) -> None:
    add(root, "bin/glslc")
    add(root, "usr/include/vulkan/vulkan_core.h", NEW_HEADER)
    add(root, "usr/include/spirv/unified1/spirv.hpp")
    assert missing_for("vulkan", machine(root)) == []
