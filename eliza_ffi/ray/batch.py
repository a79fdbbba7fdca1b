"""Batches of rows of a Ray dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..tables import TableRow
from ..tables.columns import called_apart
from ..tables.parquet import arrow_array, arrow_type, load_pyarrow


def arrow_table(batch: Any) -> Any:
    if isinstance(batch, load_pyarrow().Table):
        return batch
    from ray.data.block import BlockAccessor

    return BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()


def rows_of(table: Any, columns: Iterable[str]) -> list[TableRow]:
    names = list(dict.fromkeys(columns))
    check_columns(table.column_names, names)
    fields = table.select(names).to_pylist()
    return [TableRow(number, "", each) for number, each in enumerate(fields, 1)]


def check_columns(names: Sequence[str], wanted: Iterable[str]) -> None:
    for column in wanted:
        if column not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise InvalidArgumentError(
                f"the dataset has no column {column!r}; its columns are {listed}"
            )


def with_cells(table: Any, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> Any:
    pa = load_pyarrow()
    added = {
        name: arrow_array(pa, arrow_type(pa, kind), [cells[name] for cells in rows])
        for name, kind in types.items()
    }
    return with_columns(table, added)


def with_columns(table: Any, added: Mapping[str, Any]) -> Any:
    """Append Arrow arrays to a table, of the same types for every batch. A column of the same name
    gets the prefix ``input_``."""
    table = table.rename_columns(list(called_apart(table.column_names, added)))
    for name, array in added.items():
        table = table.append_column(name, array)
    return table


def read_json(cell: Any, what: str) -> Any:
    """Parse a cell with a string; return other cells unchanged."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} are not JSON: {error}") from None
