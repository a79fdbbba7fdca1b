"""Rows, and the interface of the tables they are read from."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..checks import did_you_mean
from ..errors import InvalidArgumentError

DELIMITERS = ",;\t|"

MAX_LISTED = 20
"""The maximum number of columns that a message lists."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes
    ----------
    number : int
        The row's number, 1 for the first. A header and empty lines do not count.
    place : str
        The row's place for messages, such as ``"mails.csv, line 7"``.
    fields : Mapping
        The row's values by column. Values that could not be read are missing.
    error : str or None
        Why the row could not be read, without its place.
    done : float
        The fraction of the table up to the end of this row, 0 to 1.
    """

    number: int
    place: str
    fields: Mapping[str, Any]
    error: str | None = None
    done: float = 0.0


class InputTable(Protocol):
    """A file with rows.

    Attributes
    ----------
    path : Path
    columns : tuple of str
        The columns of the table. For a JSONL file, the columns of its first rows.
    """

    path: Path
    columns: tuple[str, ...]

    def all_columns(self) -> tuple[str, ...]:
        """Return all columns. For a JSONL file, this reads all rows."""
        return self.columns

    def rows(
        self, after: int = 0, columns: Collection[str] | None = None
    ) -> Generator[TableRow, None, None]:
        """Yield the rows.

        Parameters
        ----------
        after
            The number of rows to skip at the beginning.
        columns
            The required columns; None = all. Rows may contain further columns.
        """


def check_column(table: InputTable, column: str) -> None:
    if column not in table.columns and column not in table.all_columns():
        listed = ", ".join(map(repr, table.columns[:MAX_LISTED])) or "none"
        if len(table.columns) > MAX_LISTED:
            listed += f" and {len(table.columns) - MAX_LISTED:,} more"
        other = other_delimiter(table, column)
        parts = [part.strip() for part in column.split(",")]
        if other:
            hint = f"if {other!r} separates the fields of the file, pass --delimiter {other!r}"
        elif len(parts) > 1 and set(parts) <= set(table.columns):
            hint = f"{column!r} names several columns: name one (--keep can be repeated)"
        else:
            hint = did_you_mean(column, table.columns)
        raise InvalidArgumentError(
            f"{table.path} has no column {column!r}; its columns are {listed}{hint and f'; {hint}'}"
        )


def other_delimiter(table: InputTable, column: str) -> str | None:
    """Return the delimiter with which a CSV table would have a column that is missing.

    For a table with a single column, this is any delimiter in the column's name. None = there is no
    such delimiter, or the table is not a CSV file.
    """
    own = getattr(table, "delimiter", None)
    if own is None:
        return None
    header = own.join(table.columns)
    for each in DELIMITERS.replace(own, ""):
        names = [name.strip(' "') for name in header.split(each)]
        if column in names or (len(names) > 1 and len(table.columns) == 1):
            return each
    return None


def check_distinct(path: Path, columns: Sequence[str]) -> None:
    for name, n in Counter(columns).items():
        if n > 1:
            raise InvalidArgumentError(f"{path} has two columns {name!r}: rename one")


def check_unchanged(path: Path, columns: tuple[str, ...], found: tuple[str, ...]) -> None:
    """Raise InvalidArgumentError if the columns differ from those at the time of opening."""
    if found != columns:
        raise InvalidArgumentError(
            f"{path} was changed since it was opened: expected the columns "
            f"{', '.join(map(repr, columns))}, found {', '.join(map(repr, found))}"
        )


def json_value(value: Any) -> Any:
    """Convert a value to JSON types.

    Times become ISO 8601 strings, bytes become Base64, NaN becomes None, and lone surrogates in
    strings become U+FFFD.
    """
    if isinstance(value, str):
        return _as_unicode(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_as_unicode(str(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)  # such as a Decimal


def json_bytes(cells: Mapping[str, Any]) -> bytes:
    """Return the cells of a row as JSON in UTF-8. Lone surrogates are escaped as ``\\udXXX``."""
    text = json.dumps(cells, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def is_unicode(text: str) -> bool:
    """Return whether a string has no lone surrogates, which stand for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_unicode(text: str) -> str:
    """Replace lone surrogates by U+FFFD."""
    if is_unicode(text):
        return text
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
