"""CSV and JSON Lines files, read one row after the other.

A row that cannot be read is a row with an error, and those behind it are read on. What makes the
whole table useless, such as a CSV file without a header, is raised.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import InvalidArgumentError
from .lines import MOST_BYTES, Lines, LongLineError
from .rows import TableRow, check_unchanged, is_unicode

__all__ = ["CsvTable", "JsonlTable"]

MOST_COLUMNS = 10_000

MOST_DEPTH = 200
"""Of lists and objects in each other in a line of JSONL: what handles them calls itself."""

PEEKED = 100
"""Rows of a JSONL file that tell what columns it has."""


class CsvTable:
    """A CSV file with a header: RFC 4180, in UTF-8.

    Parameters
    ----------
    path
    delimiter

    Raises
    ------
    InvalidArgumentError
        If it has no header, or a name twice in it.
    """

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self._delimiter = delimiter
        with Lines(path) as lines:
            self.columns = tuple(self._header(lines))

    def all_columns(self) -> tuple[str, ...]:
        """Return the columns."""
        return self.columns

    def rows(self, after: int = 0, columns: Collection[str] | None = None) -> Iterator[TableRow]:
        """Read the rows; see :class:`InputTable`."""
        size = max(self.path.stat().st_size, 1)
        with Lines(self.path) as lines:
            reader = self._reader(lines)
            check_unchanged(self.path, self.columns, tuple(self._skip_header(reader)))
            number = 0
            while True:
                first = lines.number + 1
                error = None
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except (csv.Error, LongLineError) as found:
                    cells, error = [], f"malformed: {found}"
                if not cells and error is None:
                    continue  # an empty line
                number += 1
                if number <= after:
                    continue
                if error is None and len(cells) != len(self.columns):
                    error = f"{len(cells)} fields, where the header has {len(self.columns)}"
                fields = {} if error else dict(zip(self.columns, cells, strict=True))
                place = _place(self.path, first, lines.number)
                yield TableRow(number, place, fields, error, lines.offset / size)

    def _header(self, lines: Lines) -> list[str]:
        try:
            header = self._skip_header(self._reader(lines))
        except (csv.Error, LongLineError) as error:
            raise InvalidArgumentError(f"{self.path}, line 1: malformed: {error}") from error
        if not header:
            raise InvalidArgumentError(f"{self.path} has no header: a first line names the columns")
        seen = set()
        for name in header:
            if not is_unicode(name):
                raise InvalidArgumentError(f"{self.path}, line 1: not UTF-8: save it as UTF-8")
            if name in seen:
                raise InvalidArgumentError(f"{self.path} has two columns {name!r}")
            seen.add(name)
        return header

    @staticmethod
    def _skip_header(reader: Iterator[list[str]]) -> list[str]:
        return next((cells for cells in reader if cells), [])

    def _reader(self, lines: Lines) -> Iterator[list[str]]:
        # One limit for the whole process: others may have asked for a higher one.
        csv.field_size_limit(max(csv.field_size_limit(), MOST_BYTES))
        return csv.reader(lines, delimiter=self._delimiter, strict=True)


class JsonlTable:
    """A file with a JSON object on each line. NaN, which is no JSON, is read as null."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = _names(islice(self.rows(), PEEKED))

    def all_columns(self) -> tuple[str, ...]:
        """Read all rows, and return the columns of any."""
        return _names(self.rows())

    def rows(self, after: int = 0, columns: Collection[str] | None = None) -> Iterator[TableRow]:
        """Read the rows; see :class:`InputTable`."""
        size = max(self.path.stat().st_size, 1)
        number = 0
        with Lines(self.path) as lines:
            while True:
                fields: dict[str, Any] = {}
                error = None
                try:
                    line = next(lines)
                    if not line.strip():
                        continue
                    if number >= after:
                        fields = _object(line)
                except StopIteration:
                    return
                except (ValueError, RecursionError) as found:  # of a line that is too long, too
                    error = f"malformed: {found}"
                number += 1
                if number > after:
                    place = _place(self.path, lines.number, lines.number)
                    yield TableRow(number, place, fields, error, lines.offset / size)


def _names(rows: Iterable[TableRow]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row.fields))
        if len(found) > MOST_COLUMNS:
            raise InvalidArgumentError(
                f"{row.place}: more than {MOST_COLUMNS:,} columns: objects are rows with the same "
                f"names"
            )
    return tuple(found)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_constant=lambda name: None)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(found, dict):
        raise ValueError(f"not an object, but {type(found).__name__}")
    # Few lines have so many brackets, and only these are looked at again.
    if line.count("[") + line.count("{") > MOST_DEPTH and _is_deep(found):
        raise ValueError(f"nested more than {MOST_DEPTH} deep")
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, dict | list) for each in level)


def _place(path: Path, first: int, last: int) -> str:
    return (
        f"{path.name}, line {first}" if last <= first else f"{path.name}, lines {first} to {last}"
    )
