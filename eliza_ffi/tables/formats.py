"""Rows as bytes of a file that grows, and back: JSONL and CSV.

Every row ends in a newline and says its number, so that what a killed process left half written
can be told from a row.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .columns import ROW, cell_text
from .lines import MOST_BYTES, Lines, LongLineError

__all__ = ["CsvRows", "JsonlRows", "RowFormat", "WrittenRow"]

MOST_WRITTEN_BYTES = 8 * MOST_BYTES
"""Of a row that is read back: escapes may make it longer than its input was."""

WrittenRow = tuple["dict[str, Any] | None", int]
"""The cells of a row that was read back, None where it is none; and the offset of its end."""


class RowFormat(Protocol):
    """How rows are written.

    Attributes
    ----------
    header : bytes
        What stands before all rows.
    beginning : bytes
        How every file of one row or more begins.
    """

    header: bytes
    beginning: bytes

    def encode(self, cells: Mapping[str, Any]) -> bytes:
        """Return a row, with its end."""

    def read(self, path: Path) -> Iterator[WrittenRow]:
        """Read rows back; one that is broken comes as None, and reading goes on behind it."""


class JsonlRows:
    """A JSON object on each line."""

    def __init__(self, names: Sequence[str]) -> None:
        self.header = b""
        self.beginning = b'{"row": 1,'
        self._names = tuple(names)

    def encode(self, cells: Mapping[str, Any]) -> bytes:
        text = json.dumps(cells, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "backslashreplace") + b"\n"  # an escape of JSON, too

    def read(self, path: Path) -> Iterator[WrittenRow]:
        with Lines(path, MOST_WRITTEN_BYTES) as lines:
            while True:
                cells = None
                try:
                    line = next(lines)
                    found = json.loads(line) if line.endswith("\n") else None
                    if isinstance(found, dict) and tuple(found) == self._names:
                        cells = found if _is_number(found[ROW]) else None
                except StopIteration:
                    return
                except (ValueError, RecursionError):
                    pass
                yield cells, lines.offset


class CsvRows:
    """A CSV file with a header. Lists and mappings are JSON in their fields.

    Reading gives texts, whatever was written.
    """

    def __init__(self, names: Sequence[str], delimiter: str = ",") -> None:
        self._names = tuple(names)
        self._delimiter = delimiter
        self.header = self.beginning = self._line(self._names)

    def encode(self, cells: Mapping[str, Any]) -> bytes:
        return self._line([cell_text(cells[name]) for name in self._names])

    def read(self, path: Path) -> Iterator[WrittenRow]:
        csv.field_size_limit(max(csv.field_size_limit(), MOST_WRITTEN_BYTES))
        with Lines(path, MOST_WRITTEN_BYTES) as lines:
            ends = _Ends(lines)
            reader = csv.reader(ends, delimiter=self._delimiter, strict=True)
            next(reader, None)  # the header
            while True:
                cells = None
                try:
                    fields = next(reader)
                    if ends.is_whole and len(fields) == len(self._names):
                        cells = self._cells(fields)
                except StopIteration:
                    return
                except (csv.Error, LongLineError):
                    pass
                yield cells, lines.offset

    def _cells(self, fields: list[str]) -> dict[str, Any] | None:
        cells: dict[str, Any] = dict(zip(self._names, fields, strict=True))
        if not (cells[ROW].isascii() and cells[ROW].isdigit()):
            return None
        cells[ROW] = int(cells[ROW])
        return cells

    def _line(self, fields: Sequence[str]) -> bytes:
        if sys.version_info < (3, 11):  # whose csv can neither write nor read it
            fields = [field.replace("\0", "\\x00") for field in fields]
        # The writer quotes line ends of its own kind alone, so it is told of both and one is cut.
        written = io.StringIO()
        csv.writer(written, delimiter=self._delimiter, lineterminator="\r\n").writerow(fields)
        text = written.getvalue()[: -len("\r\n")]
        return text.encode("utf-8", "backslashreplace") + b"\n"


class _Ends:
    """Lines, and whether the last one has an end."""

    def __init__(self, lines: Lines) -> None:
        self.is_whole = True
        self._lines = lines

    def __iter__(self) -> _Ends:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.is_whole = line.endswith("\n")
        return line


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
