"""The llama.cpp source tree is fetched safely, also if a download or a disk fails.

The tests use small archives and need no network.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import shutil
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import fetch_llama_cpp
import pytest
from fetch_llama_cpp import FetchError, Release, fetch, source_tree

pytestmark = pytest.mark.slow

PREFIX = "xllamacpp-1.2.3/thirdparty/llama.cpp/"
KEPT = {
    "CMakeLists.txt": b"project(llama)",
    "ggml/include/ggml.h": b"// ggml",
    "include/llama.h": b"// llama",
    "src/CMakeLists.txt": b"add_library(llama)",
    "tools/rpc/rpc-server.cpp": b"int main() {}",
    "tools/ui/CMakeLists.txt": b"add_library(llama-ui)",
}
MODELS = {"models/ggml-vocab-tiny.gguf": random.Random(1).randbytes(5000)}  # only for tests
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
    members = {PREFIX + name: content for name, content in (KEPT | MODELS | LEFT_OUT).items()}
    members |= {f"xllamacpp-1.2.3/{name}": text for name, text in OF_THE_PACKAGE.items()}
    return write_archive(tmp_path / "xllamacpp-1.2.3.tar.gz", members)


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_complete(tree: Path, release: Release, *, with_models: bool = False) -> None:
    name, text = fetch_llama_cpp.MARKER_NAME, release.marker.encode()
    of_models = MODELS | {f"models/{name}": text} if with_models else {}
    assert files_below(tree) == KEPT | {name: text} | of_models


def assert_no_files_left(cache: Path) -> None:
    assert not cache.is_dir() or list(cache.iterdir()) == []


def test_only_the_needed_files_are_unpacked(cache: Path, archive: Path) -> None:
    release = release_of(archive)
    tree = fetch(release, cache, archive)
    assert tree == cache / "llama.cpp-abc123"
    assert_complete(tree, release)
    source = tree / "src/CMakeLists.txt"
    before = source.stat().st_mtime_ns
    assert fetch(release, cache, archive, with_models=True) == tree
    assert_complete(tree, release, with_models=True)
    assert source.stat().st_mtime_ns == before  # what was built from it is not built again
    assert list(cache.iterdir()) == [tree]


def test_all_files_are_unpacked_at_once_for_tests(cache: Path, archive: Path) -> None:
    release = release_of(archive)
    tree = fetch(release, cache, archive, with_models=True)
    assert_complete(tree, release, with_models=True)
    archive.unlink()
    assert fetch(release, cache, with_models=True) == fetch(release, cache) == tree


@pytest.fixture
def index(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the real pip's only source of packages."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    return archive.parent


def test_the_real_pip_downloads_without_running_code_of_the_archive(
    cache: Path, archive: Path, index: Path
) -> None:
    release = release_of(archive)
    tree = fetch(release, cache)
    assert_complete(tree, release)
    archive.unlink()
    assert fetch(release, cache) == tree  # the second call downloads nothing


@pytest.mark.parametrize("damage", ["marker", "header", "other marker"])
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
    assert_complete(fetch(release, cache, archive), release)
    assert list(cache.iterdir()) == [tree]


@pytest.mark.parametrize("by_pip", [False, True])
def test_a_wrong_hash_raises_an_error_with_both_hashes(
    cache: Path, archive: Path, index: Path, by_pip: bool
) -> None:
    right = release_of(archive)
    wrong = replace(right, sha256="0" * 64)
    with pytest.raises(FetchError, match=f"expected sha256 {'0' * 64}, got {right.sha256}"):
        fetch(wrong, cache, None if by_pip else archive)
    assert_no_files_left(cache)


@pytest.mark.parametrize("name", ["/etc/evil", f"{PREFIX}src/../../../../evil", "../evil"])
def test_an_archive_with_a_path_outside_of_it_is_rejected(
    cache: Path, tmp_path: Path, name: str
) -> None:
    members = {PREFIX + kept: content for kept, content in KEPT.items()} | {name: b"evil"}
    evil = write_archive(tmp_path / "evil.tar.gz", members)
    with pytest.raises(FetchError, match="unsafe member"):
        fetch(release_of(evil), cache, evil)
    assert_no_files_left(cache)
    assert not list(tmp_path.rglob("evil"))


def test_a_full_disk_leaves_no_files(
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
        assert_no_files_left(cache)


def test_concurrent_runs_use_the_same_tree(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, runs = release_of(archive), 4
    all_ready = threading.Barrier(runs)
    publish = fetch_llama_cpp.publish

    def publish_together(*arguments: Any) -> None:
        all_ready.wait(timeout=30)
        publish(*arguments)

    monkeypatch.setattr(fetch_llama_cpp, "publish", publish_together)
    with ThreadPoolExecutor(runs) as pool:
        trees = set(pool.map(lambda _: fetch(release, cache, archive), range(runs)))
    (tree,) = trees
    assert_complete(tree, release)
    assert list(cache.iterdir()) == [tree]


def test_llama_cpp_source_replaces_the_download(
    cache: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = fetch(release_of(archive), tmp_path / "elsewhere", archive)
    monkeypatch.setenv("LLAMA_CPP_SOURCE", str(checkout))
    assert source_tree() == checkout
    assert not cache.exists()
