#!/usr/bin/env python3
"""Sort the schemas of JSONSchemaBench into one folder per family, for scripts/schema_coverage.py.

    scripts/fetch_json_schema_bench.py SOURCE FOLDER [--sha256 HASH]

JSONSchemaBench is a set of about ten thousand real schemas. It is published as the data set
epfl-dlab/JSONSchemaBench, and with tests of each schema in the repository
guidance-ai/jsonschemabench. This script downloads nothing, and neither copy belongs in our
repository. Download one of them yourself; SOURCE is its folder or archive (.zip, .tar, .tar.gz).
FOLDER must not exist. It gets a folder for each family, with a file for each schema.

Archives are not trusted: the script rejects any archive that contains a link or a path that leads
out of it, and gives the files new names.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import io
import json
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

DATA_SET = "epfl-dlab/JSONSchemaBench"

FAMILIES = (
    "Github_easy",
    "Github_hard",
    "Github_medium",
    "Github_trivial",
    "Github_ultra",
    "Glaiveai2K",
    "JsonSchemaStore",
    "Kubernetes",
    "Snowplow",
    "WashingtonPost",
)
"""The folders of the data set. Other folders are left out."""

LARGEST_FILE = 2**28
LARGEST_SCHEMA = 2**24
MOST_FILES = 200_000

_SUFFIXES = (".json", ".jsonl", ".parquet")
_BETWEEN = "---"
_NAMES = {re.sub("[^a-z0-9]", "", family.lower()): family for family in FAMILIES}


class SourceError(Exception):
    """The source is invalid; the message is one line for the user."""


def family_of(path: PurePosixPath, name: str = "") -> str | None:
    """Return the family of a file, or of its entry with this name, or None."""
    parts = [name.partition(_BETWEEN)[0], path.name.partition(_BETWEEN)[0]]
    for part in (*parts, *reversed(path.parent.parts)):
        found = _NAMES.get(re.sub("[^a-z0-9]", "", part.lower()))
        if found is not None:
            return found
    return None


def schemas_in(path: PurePosixPath, data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names and schemas in a file, and skip entries that are not JSON."""
    if path.suffix == ".json":
        entries: Iterable[Any] = [_read(data)]
    elif path.suffix == ".jsonl":
        entries = (_read(line) for line in data.splitlines() if line.strip())
    else:
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise SourceError(f"reading {path} needs pyarrow: pip install pyarrow") from None
        try:
            entries = parquet.read_table(io.BytesIO(data)).to_pylist()
        except (ValueError, OSError) as error:
            raise SourceError(f"{path} is not a Parquet file: {error}") from None
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        name = str(entry.get("unique_id") or path.stem + (f"-{i}" if i else ""))
        schema = entry.get("json_schema", entry)
        if schema is entry and "schema" in entry and "tests" in entry:
            schema = entry["schema"]
        if isinstance(schema, str):
            schema = _read(schema.encode())
        if isinstance(schema, dict | bool):
            yield name, schema


def _read(data: bytes) -> Any:
    if len(data) > LARGEST_SCHEMA:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def files_of(source: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the paths and contents of the files that may contain schemas.

    Raises
    ------
    SourceError
        If the source cannot be read, has an unsafe member, or is too large.
    """
    try:
        if source.is_dir():
            found = _files_of_folder(source)
        elif zipfile.is_zipfile(source):
            found = _files_of_zip(source)
        elif tarfile.is_tarfile(source):
            found = _files_of_tar(source)
        else:
            raise SourceError(f"{source}: expected a folder or a .zip or .tar archive")
        for n_files, each in enumerate(found):
            if n_files >= MOST_FILES:
                raise SourceError(f"{source}: expected at most {MOST_FILES} files, got more")
            yield each
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{source} is truncated or broken: {error}") from None
    except (NotImplementedError, RuntimeError) as error:  # for example, an encrypted archive
        raise SourceError(f"{source} cannot be read: {error}") from None


def _files_of_folder(source: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    for file in sorted(source.rglob("*")):
        path = PurePosixPath(file.relative_to(source).as_posix())
        if path.suffix in _SUFFIXES and file.is_file() and not file.is_symlink():
            _check_size(path, file.stat().st_size)
            yield path, file.read_bytes()


def _files_of_zip(source: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        for member in members:
            kind = member.external_attr >> 28  # the file type in a Unix mode
            _check_name(source, member.filename, is_plain=kind in (0, 4, 8))
        for member in members:
            path = PurePosixPath(member.filename)
            if not member.is_dir() and path.suffix in _SUFFIXES:
                _check_size(path, member.file_size)
                with archive.open(member) as file:
                    yield path, file.read(LARGEST_FILE)


def _files_of_tar(source: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    with tarfile.open(source) as archive:
        for member in archive:
            _check_name(source, member.name, is_plain=member.isfile() or member.isdir())
            path = PurePosixPath(member.name)
            if member.isfile() and path.suffix in _SUFFIXES:
                _check_size(path, member.size)
                file = archive.extractfile(member)
                if file is not None:
                    with file:
                        yield path, file.read()


def _check_name(source: Path, name: str, *, is_plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if not is_plain or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise SourceError(f"{source}: unsafe member {name!r:.200}: nothing unpacked")


def _check_size(path: PurePosixPath, size: int) -> None:
    if size > LARGEST_FILE:
        raise SourceError(f"{path}: expected at most {LARGEST_FILE} bytes, got {size}")


def lay_out(source: Path, folder: Path) -> Counter[str]:
    """Write the schemas of a source into folders by family; return the counts.

    Raises
    ------
    SourceError
        If the folder exists, or the source is invalid. No files are left.
    """
    if folder.exists():
        raise SourceError(f"{folder} exists; pass the path of a new folder")
    counts: Counter[str] = Counter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".schemas-", dir=folder.parent) as scratch:
        tree = Path(scratch) / "families"
        tree.mkdir()
        for path, data in files_of(source):
            for name, schema in schemas_in(path, data):
                family = family_of(path, name)
                if family is None:
                    continue
                file = tree / family / f"{_plain(name.rpartition(_BETWEEN)[2])}.json"
                file.parent.mkdir(exist_ok=True)
                if not file.exists():  # some sources contain schemas twice, with and without tests
                    file.write_text(json.dumps(schema), encoding="utf-8")
                    counts[family] += 1
        if not counts:
            raise SourceError(f"{source} contains no schema of a family of {DATA_SET}")
        tree.rename(folder)
    return counts


def _plain(name: str) -> str:
    """Return a file name that is valid on every system."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip(".")[:120] or "_"


def check_sha256(archive: Path, expected: str) -> None:
    """Raise SourceError unless the file has this sha256."""
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected.lower():
        raise SourceError(f"{archive}: expected sha256 {expected}, got {digest.hexdigest()}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help=f"an archive or folder of {DATA_SET}")
    parser.add_argument("folder", type=Path, help="output folder; it must not exist")
    parser.add_argument("--sha256", help="expected SHA-256 of the archive")
    options = parser.parse_args(arguments)
    try:
        if options.sha256 is not None:
            if not options.source.is_file():
                raise SourceError(f"--sha256: expected an archive, got the folder {options.source}")
            check_sha256(options.source, options.sha256)
        counts = lay_out(options.source, options.folder)
    except (SourceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for family, count in sorted(counts.items()):
        print(f"{family:16} {count:6}")
    print(f"{'all':16} {counts.total():6}  in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
