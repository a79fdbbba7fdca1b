"""Rows of tables, and the tables that they are read from."""

from __future__ import annotations

import base64
import datetime
import difflib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from ..errors import InvalidArgumentError

__all__ = [
    "InputTable",
    "TableRow",
    "check_column",
    "check_unchanged",
    "is_unicode",
    "json_value",
]

MOST_LISTED = 20
"""Columns that a message lists."""


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


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates; a byte that is not UTF-8 is read as one."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _whole_text(text: str) -> str:
    """Return a text with U+FFFD in place of every lone surrogate."""
    if is_unicode(text):
        return text
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
