"""Read the rows of CSV and JSON Lines files one at a time.

A row that cannot be read becomes a row with an error, and the next rows are read. A problem with
the whole table, such as a missing CSV header, raises an exception.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from .rows import InputTable, TableRow, check_distinct, check_unchanged, is_unicode

if TYPE_CHECKING:
    from _csv import _reader as CsvReader  # noqa: N812

MAX_BYTES = 64 * 2**20
"""The maximum length in bytes of a line, and of a CSV field, which may span several lines."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

MAX_COLUMNS = 10_000

MAX_DEPTH = 200
"""The maximum nesting depth of a line of JSONL, because later code recurses for each level."""

SAMPLED_ROWS = 100
"""The number of rows at the beginning of a JSONL file that are read for its columns."""


class LongLineError(ValueError):
    """A line is longer than :data:`MAX_BYTES`; the lines after it can still be read."""


class Lines:
    """An iterator over the lines of a UTF-8 file, including their newlines.

    Bytes that are not UTF-8 become lone surrogates, as with ``surrogateescape``, so that they
    affect only their own line. A byte order mark at the beginning is removed. `number` is the
    number of the line that was read last, 1 for the first, and `offset` the number of bytes up to
    its end.
    """

    def __init__(self, path: Path) -> None:
        self.number = 0
        self.offset = 0
        self._file = path.open("rb")
        if self._file.read(2) in _UTF16:
            self._file.close()
            raise InvalidArgumentError(f"{path} is UTF-16: save it as UTF-8")
        self._file.seek(0)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.offset += len(line)
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            self._skip_line()
            raise LongLineError(f"the line is longer than {MAX_BYTES:,} bytes")
        if self.number == 1:
            line = line.removeprefix(_BOM)
        return line.decode("utf-8", "surrogateescape")

    def _skip_line(self) -> None:
        while piece := self._file.readline(MAX_BYTES):
            self.offset += len(piece)
            if piece.endswith(b"\n"):
                return


class CsvTable(InputTable):
    """A CSV file with a header: RFC 4180, in UTF-8.

    Raises
    ------
    InvalidArgumentError
        If the file has no header, or two columns have the same name.
    """

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self.delimiter = delimiter
        with Lines(path) as lines:
            self.columns = tuple(self._header(lines))

    def rows(
        self, after: int = 0, columns: Collection[str] | None = None
    ) -> Generator[TableRow, None, None]:
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
                    error = (
                        f"expected {len(self.columns)} fields as in the header, got {len(cells)}"
                    )
                fields = {} if error else dict(zip(self.columns, cells, strict=True))
                error = error or _not_utf8(fields, columns)
                place = _place(self.path, first, lines.number)
                yield TableRow(number, place, fields, error, lines.offset / size)

    def _header(self, lines: Lines) -> list[str]:
        try:
            header = self._skip_header(self._reader(lines))
        except (csv.Error, LongLineError) as error:
            raise InvalidArgumentError(f"{self.path}, line 1: malformed: {error}") from error
        if not header:
            raise InvalidArgumentError(
                f"{self.path} has no header: expected the names of the columns in the first line"
            )
        if not all(map(is_unicode, header)):
            raise InvalidArgumentError(f"{self.path}, line 1: not UTF-8: save it as UTF-8")
        check_distinct(self.path, header)
        return header

    @staticmethod
    def _skip_header(reader: Iterator[list[str]]) -> list[str]:
        header = next((cells for cells in reader if cells), [])
        if header.count("") > 1:  # as spreadsheets write columns to the right of a table
            header = [name or f"column {n}" for n, name in enumerate(header, 1)]
        return header

    def _reader(self, lines: Lines) -> CsvReader:
        return csv_reader(lines, delimiter=self.delimiter, strict=True)


def csv_reader(lines: Iterable[str], **more: Any) -> CsvReader:
    """Return a reader of CSV whose fields may have :data:`MAX_BYTES`."""
    # The limit is global to the process, and other code may have set a higher one.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES))
    return csv.reader(lines, **more)


class JsonlTable:
    """A file with a JSON object on each line. NaN, which is not valid JSON, is read as null."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = _names(islice(self.rows(), SAMPLED_ROWS))

    def all_columns(self) -> tuple[str, ...]:
        """Read all rows, and return the columns that any of them has."""
        return _names(self.rows())

    def rows(
        self, after: int = 0, columns: Collection[str] | None = None
    ) -> Generator[TableRow, None, None]:
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
                        # Escapes such as \ud800 are valid bytes, so check the line, too.
                        error = None if is_unicode(line) else _not_utf8(fields, columns)
                except StopIteration:
                    return
                except (ValueError, RecursionError) as found:  # includes LongLineError
                    error = f"malformed: {found}"
                number += 1
                if number > after:
                    place = _place(self.path, lines.number, lines.number)
                    yield TableRow(number, place, fields, error, lines.offset / size)


def _not_utf8(fields: Mapping[str, Any], columns: Collection[str] | None) -> str | None:
    """Return the error of a row if a required column has bytes that are not UTF-8."""
    for name, value in fields.items():
        if columns is not None and name not in columns:
            continue
        if not is_unicode(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        ):
            return f"column {name!r} is not UTF-8"
    return None


def _names(rows: Iterable[TableRow]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row.fields))
        if len(found) > MAX_COLUMNS:
            raise InvalidArgumentError(
                f"{row.place}: expected at most {MAX_COLUMNS:,} columns, got more; the objects on "
                f"all lines must have the same keys"
            )
    return tuple(found)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_constant=lambda name: None)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got a {type(found).__name__}")
    # Check the depth only of lines with enough brackets, which are rare.
    if line.count("[") + line.count("{") > MAX_DEPTH and _is_deep(found):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
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
