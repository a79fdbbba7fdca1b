"""Rows of an output written once more, those with an error decided anew."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from .columns import ROW, has_error
from .journal import Journal
from .rows import TableRow

__all__ = ["is_retried", "write_again"]

Cells = Mapping[str, Any]


def is_retried(cells: Cells, limit: int | None) -> bool:
    """Return whether a row of an output is to be decided anew: one with an error, up to a limit."""
    return has_error(cells) and (limit is None or cells[ROW] <= limit)


def write_again(
    again: Journal,
    written: Callable[[], Iterator[Cells]],
    rows: Iterator[TableRow],
    decide_all: Callable[[Iterable[TableRow]], Generator[tuple[TableRow, Cells], None, None]],
    limit: int | None,
    tell: Callable[[TableRow], Any],
) -> None:
    """Write an output's rows into another file, behind those that it has already.

    Parameters
    ----------
    again
        The other file.
    written
        Reads the output from its first row.
    rows
        The table's, behind as many as the other file has.
    decide_all
        Takes rows of the table, and yields each with its row of the output, in their order.
    limit
        The last row that is decided anew.
    tell
        Called with each row that was.
    """
    # Two readers: which rows have errors is known far ahead of what is written.
    n_before = again.n_rows
    left = islice(written(), n_before, None)
    pairs = zip(islice(written(), n_before, None), rows, strict=False)
    failed = (row for cells, row in pairs if is_retried(cells, limit))
    with closing(decide_all(failed)) as decided:
        for row, found in decided:
            for cells in left:
                if cells[ROW] == row.number:
                    break
                again.append(cells)
            again.append(found)
            tell(row)
    for cells in left:
        again.append(cells)
