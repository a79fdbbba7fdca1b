"""Open tables, and write outputs, in the format that the file name tells."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..checks import check_file
from ..errors import InvalidArgumentError
from .columns import OutputColumns, cell_text
from .parquet import ParquetTable, write_parquet
from .rows import InputTable, json_bytes
from .text_tables import CsvTable, JsonlTable

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The formats of tables by file name extension."""


def format_of(path: Path) -> str:
    """Return the format of a table by the extension of its file name, one of :data:`FORMATS`."""
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
        If the file cannot be read; :class:`~eliza_ffi.errors.MissingFileError` if it does not
        exist.
    """
    kind = format_of(path)
    check_file(path, "a table")
    if kind == "jsonl":
        return JsonlTable(path)
    if kind == "parquet":
        return ParquetTable(path)
    return CsvTable(path, delimiter or ("\t" if kind == "tsv" else ","))


def write_output(
    path: Path,
    kind: str,
    rows: Iterable[Mapping[str, Any]],
    columns: OutputColumns,
    table: InputTable,
) -> None:
    """Write a file and flush it to the disk.

    The rows, one for each row of the table or only for its first rows, are iterated up to twice.
    From Parquet to Parquet, kept columns are copied with their types.
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
    for cells in rows:
        file.write(json_bytes(cells) + b"\n")


def write_csv(
    file: BinaryIO, rows: Iterable[Mapping[str, Any]], names: tuple[str, ...], delimiter: str
) -> None:
    # The writer quotes a field if it contains a character of the line terminator. With "\r\n", it
    # quotes fields with either character.
    writer = csv.writer(_NewlineEnds(file), delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(map(_without_nul, names))
    for cells in rows:
        writer.writerow([_without_nul(cell_text(cells[name])) for name in names])


class _NewlineEnds:
    """A file that writes lines with a newline instead of ``\\r\\n`` at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        text = line.removesuffix("\r\n") + "\n"
        self._file.write(text.encode("utf-8", "backslashreplace"))


def _without_nul(field: str) -> str:
    """Escape NUL characters before Python 3.11, whose csv module does not support them."""
    return field.replace("\0", "\\x00") if sys.version_info < (3, 11) else field
