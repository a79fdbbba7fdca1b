#!/usr/bin/env python3
"""Print the path of the llama.cpp source tree that the native library is built from.

The tree comes from the pinned source distribution of llama-cpp-python, which carries a full copy of
llama.cpp. It is fetched once with pip (so the user's own index settings hold), checked against a
sha256, and the part we need is unpacked into a user cache. Later calls find it there and return at
once. The path is all that is written to stdout; progress and errors go to stderr:

    $ tree="$(python3 scripts/fetch_llama_cpp.py)"

Environment
-----------
LLAMA_CPP_SOURCE
    An existing llama.cpp checkout to use instead; nothing is fetched.
ELIZA_FFI_CACHE, XDG_CACHE_HOME
    Where the cache is: ``$ELIZA_FFI_CACHE``, else ``$XDG_CACHE_HOME/eliza-ffi``, else
    ``~/.cache/eliza-ffi``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Release:
    """A llama-cpp-python source distribution and the llama.cpp commit inside it."""

    version: str
    commit: str
    sha256: str

    @property
    def directory_name(self) -> str:
        """Name of the unpacked tree in the cache."""
        return f"llama.cpp-{self.commit}"

    @property
    def prefix(self) -> str:
        """Where llama.cpp lies inside the archive."""
        return f"llama_cpp_python-{self.version}/vendor/llama.cpp/"

    @property
    def marker(self) -> str:
        """What the marker file of a complete tree says."""
        return "\n".join((f"sha256:{self.sha256}", *KEEP, ""))


PINNED = Release(
    version="0.3.36",
    commit="0c1e57098",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)

# What a build of llama, ggml, common and the RPC server needs, and the vocabularies of the tests.
# (CMake reads app/ by default, though nothing of it is built without the tools.)
KEEP = (
    "CMakeLists.txt",
    "LICENSE",
    "app/",
    "cmake/",
    "common/",
    "ggml/",
    "include/",
    "licenses/",
    "models/",
    "src/",
    "tools/rpc/",
    "vendor/",
)

MARKER_NAME = ".eliza-ffi-complete"
ABANDONED_AFTER_S = 24 * 3600.0


class FetchError(Exception):
    """The source tree cannot be had; the message is one line for the user."""


def cache_dir() -> Path:
    """The user cache that holds the source tree, built libraries and test models."""
    if own := os.environ.get("ELIZA_FFI_CACHE"):
        return Path(own).expanduser().absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "eliza-ffi"
    try:
        return Path.home() / ".cache" / "eliza-ffi"
    except RuntimeError as error:
        raise FetchError("there is no home directory: set ELIZA_FFI_CACHE to a folder") from error


def missing_from(tree: Path) -> str | None:
    """The first file that `tree` lacks to be llama.cpp, or None."""
    signs = ("CMakeLists.txt", "include/llama.h", "src/CMakeLists.txt", "ggml/include/ggml.h")
    return next((sign for sign in signs if not (tree / sign).is_file()), None)


def is_complete(tree: Path, release: Release) -> bool:
    """Whether `tree` was unpacked to the end from this release."""
    try:
        marker = (tree / MARKER_NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return marker == release.marker and missing_from(tree) is None


def hash_error(name: str, expected: str, got: str) -> FetchError:
    return FetchError(
        f"{name} is not the pinned file: sha256 expected {expected}, got {got}; "
        "the download is damaged or was replaced"
    )


def check_sha256(archive: Path, expected: str) -> None:
    """Raise FetchError unless the file has this sha256."""
    digest = hashlib.sha256()
    try:
        with archive.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise FetchError(f"cannot read the archive {archive}: {error.strerror}") from error
    if digest.hexdigest() != expected:
        raise hash_error(str(archive), expected, digest.hexdigest())


def pip_failure(output: str) -> str:
    """The line of pip's output that tells why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    errors = [line for line in lines if line.startswith("ERROR:")]
    if not errors or errors[-1] == "ERROR: Exception:":  # a traceback follows, its last line tells
        errors = lines
    reason = errors[-1].removeprefix("ERROR:").strip()
    return f"the package index cannot be reached; {reason}" if "Retrying" in output else reason


def download(release: Release, into: Path) -> Path:
    """Fetch the source distribution with pip.

    pip runs the build backend of a source distribution to read its metadata, so it is given the
    hash as well: nothing of an archive with another hash is executed.
    """
    requirements = into / "requirements.txt"
    requirements.write_text(
        f"llama-cpp-python=={release.version} --hash=sha256:{release.sha256}\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--no-binary", "llama-cpp-python", "--require-hashes"]
    command += ["--dest", str(into), "--requirement", str(requirements)]
    # Within a build that pip started, the outer build's settings would reach this pip: the name of
    # its backend, and a PYTHONPATH that hides site-packages (so pip itself).
    outer = ("_PYPROJECT_HOOKS_", "PEP517_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    if importlib.util.find_spec("pip") is None:
        environment.pop("PYTHONPATH", None)
    pip = subprocess.run(
        command, env=environment, text=True, errors="replace", capture_output=True, check=False
    )
    if pip.returncode != 0:
        got = re.search(r"Got\s+([0-9a-f]{64})", pip.stderr)
        if got:
            raise hash_error(f"llama-cpp-python {release.version}", release.sha256, got[1])
        raise FetchError(
            f"pip could not download llama-cpp-python {release.version}: {pip_failure(pip.stderr)} "
            "(without a network: give the file with --archive, or a checkout in LLAMA_CPP_SOURCE)"
        )
    archives = list(into.glob("*.tar.gz"))
    if len(archives) != 1:
        raise FetchError(f"pip left no source archive of llama-cpp-python {release.version}")
    return archives[0]


def unpack(archive: Path, release: Release, tree: Path) -> None:
    """Write the members we keep below `tree`, as plain files, and the marker last."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                plain = member.isfile() or member.isdir()
                if path.is_absolute() or ".." in path.parts or not plain:
                    raise FetchError(f"{archive}: unsafe member {member.name!r}: nothing unpacked")
                name = member.name.removeprefix(release.prefix)
                if name == member.name or not name.startswith(KEEP):
                    continue
                source = tar.extractfile(member)
                if source is not None:
                    target = tree / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with source, target.open("wb") as file:
                        shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FetchError(f"{archive} is truncated or broken: {error}") from error
    if missing := missing_from(tree):
        raise FetchError(f"{archive} has no {release.prefix}{missing}: not the expected archive")
    (tree / MARKER_NAME).write_text(release.marker, encoding="utf-8")


def publish(tree: Path, target: Path, release: Release) -> None:
    """Move a finished tree into place; where another run was first, its tree stands."""
    try:
        tree.rename(target)
    except OSError:
        if is_complete(target, release):
            return
        target.rename(tree.with_name("damaged"))
        tree.rename(target)


def remove_abandoned(cache: Path) -> None:
    """Delete working folders of runs that were killed long ago."""
    for folder in cache.glob(".fetch-*"):
        try:
            abandoned = time.time() - folder.stat().st_mtime > ABANDONED_AFTER_S
        except OSError:
            continue
        if abandoned:
            shutil.rmtree(folder, ignore_errors=True)


def fetch(release: Release, cache: Path, archive: Path | None = None) -> Path:
    """Return the tree of `release` in `cache`, unpacked from `archive` or a download if need be.

    Raises
    ------
    FetchError
        The archive is wrong, pip failed, or the cache cannot be written. Nothing is left behind.
    """
    target = cache / release.directory_name
    if is_complete(target, release):
        return target
    if archive is not None:
        check_sha256(archive, release.sha256)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        remove_abandoned(cache)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            if archive is None:
                say(f"fetching llama.cpp {release.commit} with pip (once, about 75 MB)")
                archive = download(release, Path(scratch))
                check_sha256(archive, release.sha256)
            say(f"unpacking llama.cpp {release.commit} to {target}")
            tree = Path(scratch) / "tree"
            unpack(archive, release, tree)
            publish(tree, target, release)
    except OSError as error:
        raise FetchError(
            f"cannot write the llama.cpp source to {target}: {error.strerror or error} "
            "(ELIZA_FFI_CACHE names another folder)"
        ) from error
    return target


def source_tree(cache: Path | None = None, archive: Path | None = None) -> Path:
    """The llama.cpp source tree to build from: ``LLAMA_CPP_SOURCE`` or the pinned release.

    Raises
    ------
    FetchError
        With one line that says what to do.
    """
    if own := os.environ.get("LLAMA_CPP_SOURCE"):
        tree = Path(own).expanduser().absolute()
        if missing := missing_from(tree):
            raise FetchError(f"LLAMA_CPP_SOURCE={own} is not a llama.cpp checkout: no {missing}")
        return tree
    return fetch(PINNED, cache or cache_dir(), archive)


def say(text: str) -> None:
    print(f"fetch_llama_cpp: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the path of the llama.cpp source tree.")
    parser.add_argument("--archive", type=Path, help="an already downloaded source distribution")
    parser.add_argument("--cache-dir", type=Path, help="instead of ELIZA_FFI_CACHE")
    parser.add_argument("--print-commit", action="store_true", help="print the pinned commit only")
    options = parser.parse_args(arguments)
    if options.print_commit:
        print(PINNED.commit)
        return 0
    try:
        cache = options.cache_dir.absolute() if options.cache_dir else None
        print(source_tree(cache, options.archive))
    except FetchError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that working folders are removed
    sys.exit(main())
