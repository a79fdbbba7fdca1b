"""Batches of rows of a Ray dataset: their columns, and errors of single rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..decisions.asking import is_of_row
from ..errors import InvalidArgumentError
from ..tables.columns import called_apart
from ..tables.parquet import load_pyarrow

__all__ = ["arrow_table", "cells_of", "check_columns", "or_error", "or_raised", "with_columns"]


def arrow_table(batch: Any) -> Any:
    """Convert a batch in any of Ray Data's formats to a ``pyarrow.Table``."""
    if isinstance(batch, load_pyarrow().Table):
        return batch
    from ray.data.block import BlockAccessor

    return BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()


def cells_of(table: Any, column: str) -> list[Any]:
    """Return the values of a column as Python objects.

    Raises
    ------
    InvalidArgumentError
        If the table has no such column.
    """
    check_columns(table.column_names, [column])
    values: list[Any] = table.column(column).to_pylist()
    return values


def check_columns(names: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise InvalidArgumentError if a wanted column is missing."""
    for column in wanted:
        if column not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise InvalidArgumentError(
                f"the dataset has no column {column!r}; its columns are {listed}"
            )


def with_columns(table: Any, added: Mapping[str, Any]) -> Any:
    """Append columns to a table.

    Parameters
    ----------
    table
        A column with the same name as an added one gets the prefix ``input_``.
    added
        Arrow arrays by name. Give them the same types for every batch.
    """
    table = table.rename_columns(list(called_apart(table.column_names, added)))
    for name, array in added.items():
        table = table.append_column(name, array)
    return table


def or_error(call: Any, *arguments: Any) -> Any:
    """Return the result of a call, or the InvalidArgumentError that it raises."""
    try:
        return call(*arguments)
    except InvalidArgumentError as error:
        return error


def or_raised(found: Any) -> Any:
    """Return a result or an error of a single row; raise any other error."""
    if isinstance(found, Exception) and not is_of_row(found):
        raise found
    return found
