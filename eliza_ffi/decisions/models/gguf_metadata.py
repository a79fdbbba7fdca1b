"""What a GGUF file says about its model before the tensors begin: names with values.

Of the file's entries only those that somebody wants are read; the others, such as a vocabulary, are
skipped. Whoever made the file may have meant harm, so every length is checked against what is
there, and metadata end after 32 MiB: the largest vocabularies take half of that.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from ...errors import ModelError

__all__ = ["MAX_METADATA", "MetadataValue", "read_metadata"]

MAX_METADATA = 32 * 2**20
"""How far into a file metadata are looked for, in bytes."""

MAX_ENTRIES = 65_536
MAX_NAME = 65_535  # bytes; the format's own limit
MAX_TEXT = 2**20  # bytes of a text that is wanted

MetadataValue: TypeAlias = "str | int | float | bool"
"""A value that is no array."""

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
NUMBERS = {
    kind: struct.Struct(f"<{code}")
    for kind, code in {
        **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i"},
        **{6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"},
    }.items()
}
KIND, LENGTH = NUMBERS[4], NUMBERS[10]


class _Damaged(Exception):  # noqa: N818 - what the file is
    """The file is not as the format has it."""


def read_metadata(
    path: str | os.PathLike[str], wanted: Callable[[str], bool]
) -> dict[str, MetadataValue]:
    """Read entries of a GGUF file.

    Parameters
    ----------
    path
    wanted
        Says by its name whether an entry is asked for; an array is left out in any case.

    Raises
    ------
    ModelError
        If the file cannot be read, is no GGUF file of version 2 or 3, or is damaged; the text says
        where.
    """
    # Not mapped: a file that is made shorter meanwhile would end the process.
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path that the model has
            data = file.read(MAX_METADATA)
    except (OSError, ValueError) as error:  # ValueError: no file has such a name
        raise ModelError(f"cannot read {os.fspath(path)!r}: {error}") from error
    if not data.startswith(MAGIC):
        raise ModelError(f"{os.fspath(path)} is not a GGUF file")
    entries = _Entries(data)
    try:
        return entries.read(wanted)
    except _Damaged as damage:
        raise ModelError(
            f"the metadata of {os.fspath(path)} are damaged at byte {entries.at}: {damage}"
        ) from None


class _Entries:
    """The entries of a file, read from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = len(data)
        self.at = len(MAGIC)

    def read(self, wanted: Callable[[str], bool]) -> dict[str, MetadataValue]:
        version = self._number(KIND)
        if version not in VERSIONS:
            raise _Damaged(f"version {version} is not one of {VERSIONS}")
        self._number(LENGTH)  # of tensors
        count = self._number(LENGTH)
        if count > MAX_ENTRIES:
            raise _Damaged(f"{count} entries are more than {MAX_ENTRIES}")
        found: dict[str, MetadataValue] = {}
        for _ in range(count):
            name = self._text(MAX_NAME)
            kind = self._number(KIND)
            if kind == ARRAY or not wanted(name):
                self._skip_value(kind)
                continue
            if name in found:
                raise _Damaged(f"{name} is there twice")
            found[name] = self._text(MAX_TEXT) if kind == STRING else self._number(_layout(kind))
        return found

    def _number(self, layout: struct.Struct) -> Any:
        start = self.at
        self._skip(layout.size)
        return layout.unpack_from(self._data, start)[0]

    def _text(self, limit: int) -> str:
        length = self._number(LENGTH)
        if length > limit:
            raise _Damaged(f"a text of {length} bytes, where {limit} is the most")
        start = self.at
        self._skip(length)
        try:
            return self._data[start : self.at].decode()
        except UnicodeDecodeError:
            raise _Damaged("a text that is not UTF-8") from None

    def _skip_value(self, kind: int) -> None:
        if kind == STRING:
            self._skip_texts(1)
        elif kind != ARRAY:
            self._skip(_layout(kind).size)
        else:
            kind, count = self._number(KIND), self._number(LENGTH)
            if kind == STRING:
                self._skip_texts(count)
            else:
                self._skip(_layout(kind).size * count)

    def _skip_texts(self, count: int) -> None:
        if count * LENGTH.size > self._end - self.at:
            raise _Damaged(self._too_short())
        # A vocabulary has hundreds of thousands.
        data, end, unpack, size = self._data, self._end - LENGTH.size, LENGTH.unpack_from, 8
        at = self.at
        for _ in range(count):
            if at > end:
                break
            at += size + unpack(data, at)[0]
        else:
            self._skip(at - self.at)
            return
        raise _Damaged(self._too_short())

    def _skip(self, size: int) -> None:
        if size > self._end - self.at:
            raise _Damaged(self._too_short())
        self.at += size

    def _too_short(self) -> str:
        if self._end == MAX_METADATA:
            return f"they are larger than {MAX_METADATA} bytes"
        return "the file ends there"


def _layout(kind: int) -> struct.Struct:
    """Return how a number of a kind is written; arrays in arrays are not part of the format."""
    if kind not in NUMBERS:
        raise _Damaged(f"a value of kind {kind}")
    return NUMBERS[kind]
