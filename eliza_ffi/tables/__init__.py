"""Tables of inputs: rows of CSV, JSONL and Parquet files in, rows with answers out."""

from __future__ import annotations

from .columns import AnswerCounts, OutputColumns
from .job import DecidedRow, TableJob, TableResult, TableStep, decide_rows
from .reading import CsvTable, InputTable, JsonlTable, TableRow, open_table

__all__ = [
    "AnswerCounts",
    "CsvTable",
    "DecidedRow",
    "InputTable",
    "JsonlTable",
    "OutputColumns",
    "TableJob",
    "TableResult",
    "TableRow",
    "TableStep",
    "decide_rows",
    "open_table",
]
