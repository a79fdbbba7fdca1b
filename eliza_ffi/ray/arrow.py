"""Batches of Ray Data: what is asked about in them, and answers as columns behind their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..tables.columns import called_apart
from ..tables.parquet import load_pyarrow

__all__ = ["arrow_table", "cells_of", "check_columns", "text_array", "with_columns"]


def arrow_table(batch: Any) -> Any:
    """Return a batch in any of Ray Data's formats as a ``pyarrow.Table``."""
    if isinstance(batch, load_pyarrow().Table):
        return batch
    from ray.data.block import BlockAccessor

    return BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()


def cells_of(table: Any, column: str) -> list[Any]:
    """Return a column's values as Python's.

    Raises
    ------
    InvalidArgumentError
        If there is no such column.
    """
    check_columns(table.column_names, [column])
    values: list[Any] = table.column(column).to_pylist()
    return values


def check_columns(there: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise InvalidArgumentError if one of the columns that are wanted is not there."""
    for column in wanted:
        if column not in there:
            listed = ", ".join(map(repr, there)) or "none"
            raise InvalidArgumentError(
                f"the dataset has no column {column!r}; its columns are {listed}"
            )


def with_columns(table: Any, ours: Mapping[str, Any]) -> Any:
    """Return a table with more columns behind its own.

    Parameters
    ----------
    table
        A column of it that is called like one of ours is then called ``input_...``.
    ours
        Arrays of Arrow by their names. Their types are the same for every batch, whatever is in it.
    """
    table = table.rename_columns(list(called_apart(table.column_names, ours)))
    for name, array in ours.items():
        table = table.append_column(name, array)
    return table


def text_array(values: Sequence[str | None]) -> Any:
    """Return texts as an array, also where there is none."""
    pa = load_pyarrow()
    return pa.array(values, pa.string())
