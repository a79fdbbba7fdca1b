"""Read the metadata of a GGUF file: the names and values that precede the tensors.

Only the requested entries are read. The others, such as the vocabulary, are skipped. The file may
be malicious, so every length is checked against the size of the file. Metadata of more than 32 MiB
is rejected; the largest vocabularies take half of that.

The package has its own reader because the alternatives lose something: llama.cpp writes numbers as
text with six decimals, which would change temperatures and fingerprints, and the package ``gguf``
maps the file into memory and reads the whole vocabulary, which takes more than ten times as long.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ...errors import ModelError

MAX_METADATA = 32 * 2**20
"""The largest size of metadata, in bytes."""

MAX_ENTRIES = 65_536
MAX_NAME = 65_535  # bytes; the format's own limit
MAX_TEXT = 2**20  # bytes of a requested string

T = TypeVar("T")
MetadataValue: TypeAlias = "str | int | float | bool"
"""A value that is not an array."""

ALIGNMENT, DEFAULT_ALIGNMENT = "general.alignment", 32

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
CODES = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}  # in Python's struct
NUMBERS = {kind: struct.Struct(f"<{code}") for kind, code in CODES.items()}
KIND, LENGTH = NUMBERS[4], NUMBERS[10]


class _Damaged(Exception):  # noqa: N818 - describes the file
    """The file does not follow the GGUF format."""


def read_metadata(
    path: str | os.PathLike[str], wanted: Callable[[str], bool]
) -> dict[str, MetadataValue]:
    """Read the entries of a GGUF file whose names are wanted, except arrays.

    ModelError is raised if the file cannot be read, is not a GGUF file of version 2 or 3, or is
    damaged. It names the position of the damage.
    """
    return _read(path, lambda entries: entries.read(wanted))


def is_truncated(path: str | os.PathLike[str]) -> bool:
    """Return whether a GGUF file ends before its last tensor begins, as after a broken download."""
    return Path(path).stat().st_size <= _read(path, _Entries.begin_of_last_tensor)


def _read(path: str | os.PathLike[str], read: Callable[[_Entries], T]) -> T:
    # Not memory-mapped: a mapped file that another process truncates would crash this process.
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - accepts every path of a model
            data = file.read(MAX_METADATA)
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        raise ModelError(f"cannot read {os.fspath(path)!r}: {error}") from error
    if not data.startswith(MAGIC):
        raise ModelError(f"{os.fspath(path)} is not a GGUF file")
    entries = _Entries(data)
    try:
        return read(entries)
    except _Damaged as damage:
        raise ModelError(
            f"the metadata of {os.fspath(path)} is damaged at byte {entries.at}: {damage}"
        ) from None


class _Entries:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = len(data)
        self.at = len(MAGIC)

    def read(self, wanted: Callable[[str], bool]) -> dict[str, MetadataValue]:
        version = self._number(KIND)
        if version not in VERSIONS:
            raise _Damaged(f"expected version 2 or 3, got {version}")
        self._n_tensors = self._number(LENGTH)
        count = self._number(LENGTH)
        if count > MAX_ENTRIES:
            raise _Damaged(f"expected at most {MAX_ENTRIES} entries, got {count}")
        found: dict[str, MetadataValue] = {}
        for _ in range(count):
            name = self._text(MAX_NAME)
            kind = self._number(KIND)
            if kind == ARRAY or not wanted(name):
                self._skip_value(kind)
                continue
            if name in found:
                raise _Damaged(f"{name} occurs twice")
            found[name] = self._text(MAX_TEXT) if kind == STRING else self._number(_layout(kind))
        return found

    def begin_of_last_tensor(self) -> int:
        """Return the position in the file at which the last tensor's values begin."""
        found = self.read(lambda name: name == ALIGNMENT)
        last = -1
        for _ in range(self._n_tensors):
            self._text(MAX_NAME)
            self._skip(LENGTH.size * self._number(KIND))  # its sizes
            self._number(KIND)  # its type
            last = max(last, self._number(LENGTH))
        alignment = found.get(ALIGNMENT, DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Damaged(f"expected an alignment of at least 1, got {alignment}")
        begin = -(-self.at // alignment) * alignment
        return begin + last if self._n_tensors else 0

    def _number(self, layout: struct.Struct) -> Any:
        start = self.at
        self._skip(layout.size)
        return layout.unpack_from(self._data, start)[0]

    def _text(self, limit: int) -> str:
        length = self._number(LENGTH)
        if length > limit:
            raise _Damaged(f"expected a string of at most {limit} bytes, got {length}")
        start = self.at
        self._skip(length)
        try:
            return self._data[start : self.at].decode()
        except UnicodeDecodeError:
            raise _Damaged("a string is not valid UTF-8") from None

    def _skip_value(self, kind: int) -> None:
        count = 1
        if kind == ARRAY:
            kind, count = self._number(KIND), self._number(LENGTH)
        if kind == STRING:
            self._skip_texts(count)
        else:
            self._skip(_layout(kind).size * count)

    def _skip_texts(self, count: int) -> None:
        # A fast loop, because a vocabulary has hundreds of thousands of strings.
        at, data, unpack, size = self.at, self._data, LENGTH.unpack_from, LENGTH.size
        try:
            for _ in range(count):
                at += size + unpack(data, at)[0]
        except (struct.error, OverflowError):  # the position is not in the file
            raise _Damaged(self._too_short()) from None
        self._skip(at - self.at)

    def _skip(self, size: int) -> None:
        if size > self._end - self.at:
            raise _Damaged(self._too_short())
        self.at += size

    def _too_short(self) -> str:
        if self._end == MAX_METADATA:
            return f"the metadata is larger than {MAX_METADATA} bytes"
        return "the file ends there"


def _layout(kind: int) -> struct.Struct:
    """Return the layout of a number type. The format has no nested arrays."""
    if kind not in NUMBERS:
        raise _Damaged(f"unknown value type {kind}")
    return NUMBERS[kind]
