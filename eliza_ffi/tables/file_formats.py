"""Recognize the format of a table by its file name, and open the table."""

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
"""The formats of tables by file name extension."""


def format_of(path: Path) -> str:
    """Return the format of a table by its file name.

    Raises
    ------
    InvalidArgumentError
        If the extension is not in :data:`FORMATS`.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidArgumentError(
            f"unsupported table format: {path} (supported: {', '.join(FORMATS)})"
        )
    return found


def open_table(path: Path, delimiter: str | None = None) -> InputTable:
    """Open a table and read the names of its columns.

    Parameters
    ----------
    delimiter
        The character between the fields of a CSV file; None = a comma, or a tab for ``.tsv``.

    Raises
    ------
    InvalidArgumentError
        If the format is unsupported or the file is malformed.
    NotSupportedError
        If the file is Parquet and pyarrow is not installed.
    OSError
        If the file cannot be read.
    """
    kind = format_of(path)
    if kind == "jsonl":
        return JsonlTable(path)
    if kind == "parquet":
        return ParquetTable(path)
    return CsvTable(path, delimiter or ("\t" if kind == "tsv" else ","))
