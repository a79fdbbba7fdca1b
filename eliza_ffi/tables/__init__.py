"""Decide every row of a CSV, JSONL or Parquet file, and write the rows with their answers."""

from __future__ import annotations

from .columns import AnswerCounts, OutputColumns
from .file_formats import open_table
from .job import DecidedRow, TableJob, TableResult, TableStep, decide_rows
from .rows import InputTable, TableRow
from .text_tables import CsvTable, JsonlTable

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
