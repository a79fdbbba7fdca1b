"""Rows of an output as files: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .columns import OutputColumns, cell_text
from .parquet import write_parquet
from .rows import InputTable

__all__ = ["write_csv", "write_jsonl", "write_output"]


def write_output(
    path: Path,
    kind: str,
    rows: Iterable[Mapping[str, Any]],
    columns: OutputColumns,
    table: InputTable,
) -> None:
    """Write a file, and force it onto the disk.

    Parameters
    ----------
    path
    kind
        Its format, one of :data:`~eliza_ffi.tables.file_formats.FORMATS`.
    rows
        Can be read twice. As many as the table has, or its first ones.
    columns
    table
        The input. Parquet columns are copied from it to Parquet, with their types.
    """
    with path.open("wb") as file:
        if kind == "parquet":
            write_parquet(file, rows, columns, table)
        elif kind == "jsonl":
            write_jsonl(file, rows)
        else:
            write_csv(file, rows, columns.names, "\t" if kind == "tsv" else ",")
        file.flush()
        os.fsync(file.fileno())


def write_jsonl(file: BinaryIO, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as lines of JSON."""
    for cells in rows:
        text = json.dumps(cells, ensure_ascii=False, allow_nan=False)
        file.write(text.encode("utf-8", "backslashreplace") + b"\n")  # an escape of JSON, too


def write_csv(
    file: BinaryIO, rows: Iterable[Mapping[str, Any]], names: tuple[str, ...], delimiter: str
) -> None:
    """Write a header and the rows. Lists and mappings are JSON in their fields."""
    # The writer quotes only its own line ends, so its lines end in both characters.
    writer = csv.writer(_ShortEnds(file), delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(map(_without_nul, names))
    for cells in rows:
        writer.writerow([_without_nul(cell_text(cells[name])) for name in names])


class _ShortEnds:
    """A file whose lines end in a newline alone."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        text = line.removesuffix("\r\n") + "\n"
        self._file.write(text.encode("utf-8", "backslashreplace"))


def _without_nul(field: str) -> str:
    """Return a field as Python's csv can write and read it; before 3.11 it has no NUL."""
    return field.replace("\0", "\\x00") if sys.version_info < (3, 11) else field
