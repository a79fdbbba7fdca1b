"""What a backend's build needs is named in one line before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_toolchain import CHECKS, Machine, main, missing_for, vulkan_version

pytestmark = pytest.mark.slow

OLD_HEADER = """
#define VK_HEADER_VERSION 239
#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)
"""
NEW_HEADER = """
#define VK_HEADER_VERSION 309
#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)
"""


class FakeMachine:
    """A folder that plays a machine: it has what a test puts there, and nothing else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables: dict[str, str] = {}
        self.platform = "linux"
        for folder in ("bin", "usr/include", "usr/lib", "dev"):
            (root / folder).mkdir(parents=True)
        self.add_program("g++")

    def add_program(self, name: str) -> None:
        file = self.root / "bin" / name
        file.write_text("")
        file.chmod(0o755)

    def add_file(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def missing(self, backend: str) -> list[str]:
        return missing_for(backend, self.machine())

    def machine(self) -> Machine:
        return Machine(
            path=str(self.root / "bin"),
            roots=(self.root / "usr",),
            multiarch="x86_64-linux-gnu",
            platform=self.platform,
            devices=self.root / "dev",
            variables={"ROCM_PATH": str(self.root / "rocm"), **self.variables},
        )


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.mark.parametrize("backend", CHECKS)
def test_without_a_compiler_nothing_can_be_built(fake: FakeMachine, backend: str) -> None:
    (fake.root / "bin" / "g++").unlink()
    assert "a C++ compiler is missing" in fake.missing(backend)[0]


@pytest.mark.parametrize("backend", sorted(set(CHECKS) - {"cpu", "rpc"}))
def test_a_bare_machine_is_told_in_one_line(
    fake: FakeMachine, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([backend], fake.machine()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"make {backend}: ")
    assert err.count("\n") == 1


def test_cuda_needs_nvcc_cublas_and_a_gpu_or_its_number(fake: FakeMachine) -> None:
    assert "nvcc is missing" in fake.missing("cuda")[0]
    fake.add_program("nvcc")
    no_cublas, no_gpu = fake.missing("cuda")
    assert "cuBLAS is missing" in no_cublas
    assert "CUDA_ARCHITECTURES=90" in no_gpu
    fake.add_file("usr/cuda/include/cublas_v2.h")
    fake.variables["CUDA_ARCHITECTURES"] = "90"
    assert fake.missing("cuda") == []


def test_vulkan_headers_that_are_too_old_are_told_apart_from_none(fake: FakeMachine) -> None:
    for name in ("spirv/unified1/spirv.hpp", "vulkan/placeholder"):
        fake.add_file(f"usr/include/{name}")
    fake.add_file("usr/lib/x86_64-linux-gnu/libvulkan.so")
    fake.add_program("glslc")
    assert "headers are missing" in fake.missing("vulkan")[0]
    fake.add_file("usr/include/vulkan/vulkan_core.h", OLD_HEADER)
    (problem,) = fake.missing("vulkan")
    assert "1.3.239" in problem and "1.3.272" in problem and "VULKAN_INCLUDE_DIR" in problem


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (OLD_HEADER, (1, 3, 239)),
        (NEW_HEADER, (1, 4, 309)),
        (NEW_HEADER.replace("API_VERSION(0, ", "VERSION("), (1, 4, 309)),
        ("", (0, 0, 0)),
    ],
)
def test_the_version_is_read_from_the_header(text: str, version: tuple[int, int, int]) -> None:
    assert vulkan_version(text) == version
