"""Rows of tables: CSV, JSONL and Parquet files, read one row after the other.

A row that cannot be read is a row with an error, and those behind it are read on. What makes the
whole table useless, such as a CSV file without a header, is raised.
"""

from __future__ import annotations

import base64
import csv
import datetime
import difflib
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ..errors import InvalidArgumentError
from .lines import MOST_BYTES, Lines, LongLineError

__all__ = [
    "FORMATS",
    "CsvTable",
    "InputTable",
    "JsonlTable",
    "TableRow",
    "check_column",
    "check_unchanged",
    "content_hash",
    "format_of",
    "is_unicode",
    "json_value",
    "open_table",
]

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The formats of tables by the ends of their files' names."""

MOST_COLUMNS = 10_000

MOST_LISTED = 20
"""Columns that a message lists."""

MOST_DEPTH = 200
"""Of lists and objects in each other in a line of JSONL: what handles them calls itself."""

PEEKED = 100
"""Rows of a JSONL file that tell what columns it has."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes
    ----------
    number : int
        1 for the first; a header and empty lines do not count.
    place : str
        Where it is, such as ``"mails.csv, line 7"``.
    fields : Mapping
        Its values by column, as far as it could be read.
    error : str or None
        Why it could not be read; without its place.
    done : float
        The share of the table up to its end, 0 to 1.
    """

    number: int
    place: str
    fields: Mapping[str, Any]
    error: str | None = None
    done: float = 0.0


class InputTable(Protocol):
    """A file of rows.

    Attributes
    ----------
    path : Path
    columns : tuple of str
        Those it has; of a JSONL file, those of its first rows.
    """

    path: Path
    columns: tuple[str, ...]

    def all_columns(self) -> tuple[str, ...]:
        """Return all columns; of a JSONL file, those of any of its rows."""

    def rows(self, after: int = 0, columns: Collection[str] | None = None) -> Iterator[TableRow]:
        """Read the rows.

        Parameters
        ----------
        after
            How many to leave out at the beginning.
        columns
            Those that are wanted; None = all. A row may have more than these.
        """


def format_of(path: Path) -> str:
    """Return the format of a table by its file's name.

    Raises
    ------
    InvalidArgumentError
        If the name ends in none of :data:`FORMATS`.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidArgumentError(
            f"unsupported table format: {path} (supported: {', '.join(FORMATS)})"
        )
    return found


def open_table(path: Path, delimiter: str | None = None) -> InputTable:
    """Open a table, and read what columns it has.

    Parameters
    ----------
    path
    delimiter
        What separates the fields of a CSV file; None = a comma, in ``.tsv`` a tab.

    Raises
    ------
    InvalidArgumentError
        If it is no table.
    NotSupportedError
        If it is a Parquet file and pyarrow is not installed.
    OSError
        If it cannot be read.
    """
    kind = format_of(path)
    if kind == "jsonl":
        return JsonlTable(path)
    if kind == "parquet":
        from .parquet import ParquetTable  # which needs pyarrow

        return ParquetTable(path)
    return CsvTable(path, delimiter or ("\t" if kind == "tsv" else ","))


def check_column(table: InputTable, column: str) -> None:
    """Raise InvalidArgumentError if a table has no such column."""
    if column not in table.columns and column not in table.all_columns():
        listed = ", ".join(map(repr, table.columns[:MOST_LISTED])) or "none"
        if len(table.columns) > MOST_LISTED:
            listed += f" and {len(table.columns) - MOST_LISTED:,} more"
        near = difflib.get_close_matches(column, table.columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidArgumentError(
            f"{table.path} has no column {column!r}; its columns are {listed}{hint}"
        )


def check_unchanged(path: Path, columns: tuple[str, ...], found: tuple[str, ...]) -> None:
    """Raise InvalidArgumentError if a table no longer has the columns it was opened with."""
    if found != columns:
        raise InvalidArgumentError(
            f"{path} was changed since it was opened: expected the columns "
            f"{', '.join(map(repr, columns))}, found {', '.join(map(repr, found))}"
        )


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def json_value(value: Any) -> Any:
    """Return a value as JSON has it.

    Times become ISO 8601, bytes Base64, NaN null, and what is no Unicode in a text U+FFFD.
    """
    if isinstance(value, str):
        return _whole_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_whole_text(str(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    return str(value)


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


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates; a byte that is not UTF-8 is read as one."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _whole_text(text: str) -> str:
    """Return a text with U+FFFD in place of every lone surrogate."""
    if is_unicode(text):
        return text
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
