"""Before a build, one line names the tools and headers that a backend needs."""

from __future__ import annotations

from pathlib import Path

import check_toolchain
import pytest
from check_toolchain import CHECKS, missing_for

NEW_HEADER = """
#define VK_HEADER_VERSION 309
#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that represents a machine with only a C++ compiler."""
    monkeypatch.setattr(check_toolchain, "ROOTS", [str(tmp_path / "usr")])
    add(tmp_path, "bin/g++")
    return tmp_path


def add(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def missing(root: Path, backend: str, **variables: str) -> list[str]:
    paths = {"PATH": str(root / "bin"), "ROCM_PATH": str(root / "rocm")}
    return missing_for(backend, {**paths, **variables})


@pytest.mark.parametrize("backend", sorted(set(CHECKS) - {"cpu", "rpc"}))
def test_a_machine_without_tools_is_told_what_is_missing(root: Path, backend: str) -> None:
    assert missing(root, backend) != []
    assert missing(root, "cpu") == []
    (root / "bin" / "g++").unlink()
    assert missing(root, backend)[0].startswith("a C++ compiler is missing")


def test_cuda_needs_nvcc_cublas_and_a_gpu_or_an_architecture(root: Path) -> None:
    assert "nvcc is missing" in missing(root, "cuda")[0]
    add(root, "bin/nvcc")
    assert "cuBLAS is missing" in missing(root, "cuda", CUDA_ARCHITECTURES="90")[0]
    add(root, "usr/cuda/include/cublas_v2.h")
    assert missing(root, "cuda", CUDA_ARCHITECTURES="90") == []


def test_vulkan_needs_headers_and_glslc_but_not_libvulkan(root: Path) -> None:
    add(root, "bin/glslc")
    add(
        root, "usr/include/vulkan/vulkan_core.h", NEW_HEADER.replace("309", "100").replace("4", "3")
    )
    add(root, "usr/include/spirv/unified1/spirv.hpp")
    assert "1.3.272 or newer, got 1.3.100" in missing(root, "vulkan")[0]
    add(root, "usr/include/vulkan/vulkan_core.h", NEW_HEADER)
    assert missing(root, "vulkan") == []
