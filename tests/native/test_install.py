"""Programs build against the installed library, and the samplers build without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library, library_file_name
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "reference" / "c.md").read_text(encoding="utf-8")
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

INSTALLED = {
    "include/eliza/eliza.h",
    "include/eliza/eliza_gumbel_sampler.h",
    "include/eliza/eliza_inference.h",
    "include/eliza/eliza_token_trie_sampler.h",
    "include/eliza/eliza_voice.h",
    "LIB/cmake/elizainference/elizainference-config-version.cmake",
    "LIB/cmake/elizainference/elizainference-config.cmake",
    "LIB/cmake/elizainference/elizainference-targets-release.cmake",
    "LIB/cmake/elizainference/elizainference-targets.cmake",
    f"LIB/{library_file_name()}",
    "LIB/pkgconfig/elizainference.pc",
    "share/doc/elizainference/LICENSE",
    "share/doc/elizainference/LICENSE.llama.cpp",
    "share/doc/elizainference/LICENSE.nlohmann-json",
}
"""All files under the prefix. LIB stands for lib, lib64 or the system's other name for it."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    result = attempt(*command, cwd=cwd)
    assert result.returncode == 0, result.stdout
    return result.stdout


def attempt(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which(str(command[0]), path=TOOLS)
    if program is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(
        [program, *command[1:]],
        cwd=cwd,
        env={**os.environ, "PATH": TOOLS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def build(source: Path, folder: Path, *options: str) -> Path:
    """Configure and build a CMake project without optimization, and return its build folder."""
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", *options)
    run("cmake", "--build", folder)
    return folder


@pytest.fixture(scope="module")
def build_folder(library: Library) -> Path:
    named = os.environ.get(LIBRARY_VARIABLE)
    folder = Path(named).parent if named else ROOT / "build" / "cpu"
    if not (folder / "cmake_install.cmake").is_file():
        pytest.fail(f"{folder} is not a build of the library: run 'make cpu'")
    return folder


@pytest.fixture(scope="module")
def prefix(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = tmp_path_factory.mktemp("installed") / "first"
    run("cmake", "--install", build_folder, "--prefix", first)
    return first.rename(first.with_name("moved"))


@pytest.fixture(scope="module")
def lib(prefix: Path) -> Path:
    (found,) = prefix.rglob(library_file_name())
    return found.parent


@pytest.fixture(scope="module")
def llama_options(build_folder: Path) -> list[str]:
    """Return options that make the build's llama.cpp look like one that a user has installed."""
    cache = (build_folder / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^llama_DIR:PATH=(.*)$", cache, flags=re.MULTILINE)
    assert found is not None
    kernels = Path(found[1]).parents[1] / "libggml-cpu.a"
    fetch = [sys.executable, str(ROOT / "scripts" / "fetch_llama_cpp.py")]
    source = subprocess.run(fetch, check=True, capture_output=True, text=True).stdout.strip()
    return [
        f"-Dllama_DIR={found[1]}",
        f"-DNLOHMANN_JSON_INCLUDE_DIR={source}/vendor",
        # In our build, llama.cpp calls its kernels by other names (native/cmake/CpuKernels.cmake).
        f"-DCMAKE_CXX_STANDARD_LIBRARIES={build_folder}/libllama_cpu_kernels.a {kernels}",
    ]


@pytest.fixture(scope="module")
def examples(
    prefix: Path, llama_options: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", *llama_options]
    return build(ROOT / "native" / "examples", folder, *options)


@pytest.fixture(scope="module")
def hello(tiny_model: Model) -> str:
    """Return the expected output of the page's C program: the package's answer to its prompt."""
    prompt = re.search(r'prompt = "(.*)";', blocks("c")[0])
    assert prompt is not None
    text = tiny_model.generate(prompt[1], max_tokens=20).text
    assert len(text) > 5
    return text


def test_exactly_the_listed_files_are_installed(prefix: Path, lib: Path) -> None:
    libdir = lib.relative_to(prefix).as_posix()
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if not path.is_dir()}
    assert files == {name.replace("LIB", libdir) for name in INSTALLED}


def test_installed_text_files_contain_no_local_paths(prefix: Path, build_folder: Path) -> None:
    local = [str(ROOT), str(build_folder), str(prefix.parent), str(Path.home() / ".cache")]
    files = [path for path in prefix.rglob("*") if path.suffix in (".cmake", ".pc", ".h")]
    assert len(files) > 8
    assert [(f, p) for f in files for p in local if p in f.read_text(encoding="utf-8")] == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no SONAME")
def test_the_soname_is_the_plain_file_name(lib: Path) -> None:
    dynamic = run("readelf", "-d", lib / library_file_name())
    assert "[libelizainference.so]" in next(s for s in dynamic.splitlines() if "(SONAME)" in s)
    assert "(RUNPATH)" not in dynamic
    assert "libstdc++" not in dynamic


@pytest.mark.parametrize(("version", "found"), [("0.1", True), ("0.99", False), ("1", False)])
def test_find_package_compares_versions(
    version: str, found: bool, prefix: Path, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES C)\n"
        f"find_package(elizainference {version} REQUIRED)\n",
        encoding="utf-8",
    )
    options = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"]
    result = attempt("cmake", "-S", tmp_path, "-B", tmp_path / "build", *options)
    assert (result.returncode == 0) is found, result.stdout
    assert found or f'requested version "{version}"' in result.stdout


def test_the_pages_c_program_builds_with_find_package(
    prefix: Path, hello: str, tmp_path: Path
) -> None:
    (tmp_path / "hello.c").write_text(blocks("c")[0], encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text(blocks("cmake")[0], encoding="utf-8")
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_C_FLAGS=-Wall -Werror"]
    folder = build(tmp_path, tmp_path / "build", *options)
    assert run(folder / "hello", default_model_path()) == hello


def test_the_pages_pkg_config_commands_build_its_c_program(
    prefix: Path, lib: Path, hello: str, tmp_path: Path
) -> None:
    (tmp_path / "hello.c").write_text(blocks("c")[0], encoding="utf-8")
    (block,) = [text for text in blocks("console") if "pkg-config" in text]
    commands = "\n".join(line.removeprefix("$ ") for line in block.splitlines())
    commands = commands.replace("/opt/eliza/lib", str(lib)).replace("/opt/eliza", str(prefix))
    commands = commands.replace("model.gguf", str(default_model_path()))
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    assert run("sh", "-euc", commands, cwd=tmp_path) == hello
    pkg_config = ("pkg-config", f"--with-path={lib}/pkgconfig", "--modversion", "elizainference")
    version = run(*pkg_config).strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_pages_cplusplus_program_opens_a_model_and_reports_a_missing_one(
    prefix: Path, lib: Path, tmp_path: Path
) -> None:
    source = tmp_path / "handles.cpp"
    source.write_text(blocks("cpp")[0], encoding="utf-8")
    flags = ["-std=c++11", "-Wall", "-Werror", f"-I{prefix}/include"]
    libraries = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lelizainference"]
    run("c++", "-o", tmp_path / "handles", source, *flags, *libraries)
    assert run(tmp_path / "handles", default_model_path()) == "a model\n"
    missing = attempt(tmp_path / "handles", tmp_path / "missing.gguf")
    assert missing.returncode == 1
    assert "missing.gguf" in missing.stdout


def test_the_c_example_makes_the_same_choice_as_the_package(
    examples: Path, tiny_model: Model
) -> None:
    labels = ["RESPOND", "IGNORE", "STOP"]
    choice = tiny_model.choose("message: stop!\naction: ", labels)
    answer = run(examples / "choose", default_model_path()).splitlines()
    assert answer[0].startswith(f"chosen: {choice.value}, ")
    assert [line.split()[0] for line in answer[1:]] == labels


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("Is this message for you? Answer:", ["RESPOND", "IGNORE", "STOP"]),
        ("Next action: IGNORE. Next action:", ["RESPOND", "IGNORE", "STOP"]),
        ("Look it up.", ["SEARCH_WEB", "SEND_EMAIL", "SEND_MESSAGE", "CREATE_NOTE"]),
        (
            "SEND_MAIL_TO_BOB, SEND_MAIL_TO_BOB,",
            ["SEND_MAIL_TO_ANN", "SEND_MAIL_TO_BOB", "SEND_MAIL_TO_ALL_OF_THEM"],
        ),
        ("Once", ["upon a", "upon a time", "upon a time in a land"]),
    ],
)
def test_the_sampler_in_a_llama_cpp_chain_makes_the_same_choice_as_the_package(
    prompt: str, choices: list[str], examples: Path, tiny_model: Model
) -> None:
    choice = tiny_model.choose(prompt, choices)
    answer = run(examples / "sampler_in_chain", default_model_path(), prompt, *choices)
    assert answer == f"chosen: {choice.value}\n"


def test_the_pages_sampler_program_builds_on_an_installed_llama_cpp(
    llama_options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "eliza-ffi").symlink_to(ROOT)
    (tmp_path / "app.cpp").write_text(blocks("cpp")[1], encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text(blocks("cmake")[1], encoding="utf-8")
    folder = build(tmp_path, tmp_path / "build", *llama_options)
    assert run(folder / "app") == "token 2\n"


def nothing(folder: Path) -> str:
    return ""


def an_old_llama(folder: Path) -> str:
    (folder / "llama.h").write_text("struct llama_sampler_i;\n", encoding="utf-8")
    return a_llama(folder)


def a_llama(folder: Path) -> str:
    return (
        "add_library(llama INTERFACE IMPORTED)\n"
        f"target_include_directories(llama INTERFACE {folder})\n"
        f"set(NLOHMANN_JSON_INCLUDE_DIR {folder})\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (nothing, "The target `llama` is missing"),
        (an_old_llama, "expected llama_sampler_i to have copy_state"),
        (a_llama, "expected a folder with nlohmann/json.hpp"),
    ],
)
def test_configuring_the_sampler_reports_missing_requirements(
    given: Callable[[Path], str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES CXX)\n"
        f"{given(tmp_path)}add_subdirectory({ROOT}/native/sampler sampler)\n",
        encoding="utf-8",
    )
    result = attempt("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja")
    assert result.returncode != 0
    assert said in " ".join(result.stdout.split())
