"""Fetching the llama.cpp source tree, with small archives and a stand-in for pip (no network)."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import fetch_llama_cpp
import pytest
from fetch_llama_cpp import FetchError, Release, fetch, source_tree

pytestmark = pytest.mark.slow

SCRIPT = Path(fetch_llama_cpp.__file__)
PREFIX = "xllamacpp-1.2.3/thirdparty/llama.cpp/"
KEPT = {
    "CMakeLists.txt": b"project(llama)",
    "ggml/include/ggml.h": b"// ggml",
    "include/llama.h": b"// llama",
    "models/ggml-vocab-tiny.gguf": random.Random(1).randbytes(5000),
    "src/CMakeLists.txt": b"add_library(llama)",
    "tools/rpc/rpc-server.cpp": b"int main() {}",
    "tools/ui/CMakeLists.txt": b"add_library(llama-ui)",
}
LEFT_OUT = {"docs/logo.png": b"png", "tools/ui/src/app.html": b"<html>"}
OF_THE_PACKAGE = {
    "pyproject.toml": b"""
[build-system]
requires = ["setuptools", "cython"]
build-backend = "setuptools.build_meta"
""",
    "setup.py": b"raise SystemExit('the archive was executed')",
    "PKG-INFO": b"Metadata-Version: 2.1\nName: xllamacpp\nVersion: 1.2.3\n",
}
STAND_IN_FOR_PIP = """
import os, shutil, sys, time
with open(os.environ["PIP_LOG"], "a") as log:
    print(*sys.argv[1:], file=log)
if "PIP_SLEEP" in os.environ:
    time.sleep(float(os.environ["PIP_SLEEP"]))
if "PIP_FAILURE" in os.environ:
    sys.exit(os.environ["PIP_FAILURE"])
shutil.copy(os.environ["PIP_ARCHIVE"], sys.argv[sys.argv.index("--dest") + 1])
"""


def write_archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def release_of(archive: Path) -> Release:
    return Release("1.2.3", "abc123", hashlib.sha256(archive.read_bytes()).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LLAMA_CPP_SOURCE", raising=False)
    monkeypatch.setenv("ELIZA_FFI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    members = {PREFIX + name: content for name, content in (KEPT | LEFT_OUT).items()}
    members |= {f"xllamacpp-1.2.3/{name}": text for name, text in OF_THE_PACKAGE.items()}
    return write_archive(tmp_path / "xllamacpp-1.2.3.tar.gz", members)


@pytest.fixture
def pip_calls(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[str]]:
    """Put a stand-in for pip before the real one; returns its calls' command lines."""
    package = tmp_path / "stand_in" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN_FOR_PIP)
    log = tmp_path / "pip.log"
    log.touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PIP_LOG", str(log))
    monkeypatch.setenv("PIP_ARCHIVE", str(archive))
    return lambda: log.read_text().splitlines()


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_whole(tree: Path, release: Release) -> None:
    marker = {fetch_llama_cpp.MARKER_NAME: release.marker.encode()}
    assert files_below(tree) == KEPT | marker


def assert_nothing_left(cache: Path) -> None:
    assert not cache.is_dir() or list(cache.iterdir()) == []


def test_an_archive_is_unpacked_to_the_parts_we_keep(cache: Path, archive: Path) -> None:
    release = release_of(archive)
    tree = fetch(release, cache, archive)
    assert tree == cache / "llama.cpp-abc123"
    assert_whole(tree, release)
    assert list(cache.iterdir()) == [tree]


@pytest.fixture
def index(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the real pip is told to look in, and nowhere else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    return archive.parent


def test_the_real_pip_downloads_without_running_anything_of_the_archive(
    cache: Path, archive: Path, index: Path
) -> None:
    release = release_of(archive)
    assert_whole(fetch(release, cache), release)


def test_the_real_pip_refuses_another_hash(cache: Path, archive: Path, index: Path) -> None:
    right = release_of(archive)
    with pytest.raises(FetchError, match=f"expected {'0' * 64}, got {right.sha256}"):
        fetch(replace(right, sha256="0" * 64), cache)
    assert_nothing_left(cache)


def test_a_second_run_downloads_nothing(
    cache: Path, archive: Path, pip_calls: Callable[[], list[str]]
) -> None:
    release = release_of(archive)
    first = fetch(release, cache)
    assert fetch(release, cache) == first
    assert len(pip_calls()) == 1


@pytest.mark.parametrize("damage", ["marker", "header", "other parts kept"])
def test_a_damaged_tree_is_replaced(cache: Path, archive: Path, damage: str) -> None:
    release = release_of(archive)
    tree = fetch(release, cache, archive)
    if damage == "marker":
        (tree / fetch_llama_cpp.MARKER_NAME).unlink()
    elif damage == "header":
        (tree / "include/llama.h").unlink()
    else:
        (tree / fetch_llama_cpp.MARKER_NAME).write_text(f"sha256:{release.sha256}\nsrc/\n")
    (tree / "stray").touch()
    assert_whole(fetch(release, cache, archive), release)
    assert list(cache.iterdir()) == [tree]


@pytest.mark.parametrize("by_pip", [False, True])
def test_a_wrong_hash_names_both_hashes(
    cache: Path, archive: Path, pip_calls: Callable[[], list[str]], by_pip: bool
) -> None:
    right = release_of(archive)
    wrong = replace(right, sha256="0" * 64)
    with pytest.raises(FetchError, match=f"expected {'0' * 64}, got {right.sha256}"):
        fetch(wrong, cache, None if by_pip else archive)
    assert_nothing_left(cache)


def test_another_archive_is_refused(cache: Path, tmp_path: Path) -> None:
    other = write_archive(tmp_path / "other.tar.gz", {"flask-1.0/setup.py": b""})
    with pytest.raises(FetchError, match="not the expected archive"):
        fetch(release_of(other), cache, other)
    assert_nothing_left(cache)


@pytest.mark.parametrize("name", ["/etc/evil", f"{PREFIX}src/../../../../evil", "../evil"])
def test_a_member_that_leaves_the_tree_is_refused(cache: Path, tmp_path: Path, name: str) -> None:
    members = {PREFIX + kept: content for kept, content in KEPT.items()} | {name: b"evil"}
    evil = write_archive(tmp_path / "evil.tar.gz", members)
    with pytest.raises(FetchError, match="unsafe member"):
        fetch(release_of(evil), cache, evil)
    assert_nothing_left(cache)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_plain_file_is_refused(
    cache: Path, tmp_path: Path, kind: bytes
) -> None:
    evil = tmp_path / "evil.tar.gz"
    with tarfile.open(evil, "w:gz") as tar:
        link = tarfile.TarInfo(PREFIX + "src/link")
        link.type, link.linkname = kind, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(FetchError, match="unsafe member"):
        fetch(release_of(evil), cache, evil)
    assert_nothing_left(cache)


def test_a_disk_that_fills_up_at_any_file_leaves_nothing(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfileobj
    for failing in range(len(KEPT)):
        written = 0

        def copy_until_full(*arguments: Any, failing: int = failing) -> None:
            nonlocal written
            if written == failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += 1
            copy(*arguments)

        monkeypatch.setattr(shutil, "copyfileobj", copy_until_full)
        with pytest.raises(FetchError, match="No space left on device"):
            fetch(release_of(archive), cache, archive)
        assert written == failing
        assert_nothing_left(cache)


def test_concurrent_runs_share_the_tree_of_the_first(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, runs = release_of(archive), 4
    all_unpacked = threading.Barrier(runs)
    publish = fetch_llama_cpp.publish

    def publish_together(*arguments: Any) -> None:
        all_unpacked.wait(timeout=30)
        publish(*arguments)

    monkeypatch.setattr(fetch_llama_cpp, "publish", publish_together)
    with ThreadPoolExecutor(runs) as pool:
        trees = set(pool.map(lambda _: fetch(release, cache, archive), range(runs)))
    (tree,) = trees
    assert_whole(tree, release)
    assert list(cache.iterdir()) == [tree]


def test_a_terminated_run_leaves_nothing(
    cache: Path, pip_calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_SLEEP", "60")
    with subprocess.Popen([sys.executable, str(SCRIPT)], stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 30
        while not pip_calls() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(cache.glob(".fetch-*"))
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=30) == 143
    assert_nothing_left(cache)


def test_a_checkout_of_the_user_is_used_as_it_is(
    cache: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = fetch(release_of(archive), tmp_path / "elsewhere", archive)
    monkeypatch.setenv("LLAMA_CPP_SOURCE", str(checkout))
    assert source_tree() == checkout
    assert not cache.exists()


def test_stdout_holds_the_path_alone(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_llama_cpp, "PINNED", release_of(archive))
    assert fetch_llama_cpp.main(["--archive", str(archive)]) == 0
    assert capsys.readouterr().out == f"{cache / 'llama.cpp-abc123'}\n"
    assert fetch_llama_cpp.main(["--print-commit"]) == 0
    assert capsys.readouterr().out == "abc123\n"
    assert fetch_llama_cpp.main(["--print-cache-dir"]) == 0
    assert capsys.readouterr().out == f"{cache}\n"
