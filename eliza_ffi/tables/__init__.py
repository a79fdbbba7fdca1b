"""Decide every row of a CSV, JSONL or Parquet file, and write the rows with their answers.

:func:`decide_table` does the same as the command ``eliza-ffi decide TABLE``.
"""

from __future__ import annotations

from .columns import AnswerCounts, OutputColumns
from .decider import DecidedRow, Decider, RowDecider, decide_rows
from .file_formats import open_table
from .job import TableResult, TableStep, decide_table, run
from .learning import ChangedAnswer, LearnedAnswers
from .rows import InputTable, TableRow
from .text_tables import CsvTable, JsonlTable

__all__ = [
    "AnswerCounts",
    "ChangedAnswer",
    "CsvTable",
    "DecidedRow",
    "Decider",
    "InputTable",
    "JsonlTable",
    "LearnedAnswers",
    "OutputColumns",
    "RowDecider",
    "TableResult",
    "TableRow",
    "TableStep",
    "decide_rows",
    "decide_table",
    "open_table",
    "run",
]
