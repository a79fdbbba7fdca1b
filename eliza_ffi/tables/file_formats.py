"""The formats of tables by their files' names."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidArgumentError
from .parquet import ParquetTable
from .rows import InputTable
from .text_tables import CsvTable, JsonlTable

__all__ = ["FORMATS", "format_of", "open_table"]

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The formats of tables by the ends of their files' names."""


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
        return ParquetTable(path)
    return CsvTable(path, delimiter or ("\t" if kind == "tsv" else ","))
