"""Shared by ``evaluate`` and ``calibrate``: a table with right answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..decisions.questions import Question
from ..tables import TableStep
from ..tables.labels import LabelledRows, label_columns
from ..terminal import printable
from .console import UsageError
from .progress import RowProgress
from .questions import (
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_table,
)

__all__ = ["add_labelled_arguments", "read_labelled", "report_left_out", "show_progress"]

MAX_ROWS_NAMED = 10
"""Maximum number of rows without a usable input that are listed one by one."""


def add_labelled_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the table, its right answers, the questions and the prompts."""
    parser.add_argument(
        "table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file with right answers"
    )
    add_question_arguments(parser)
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="QUESTION=COLUMN",
        help="the column with the right answers to a question; repeat for each question (default: "
        "the column with the question's name)",
    )
    add_asking_arguments(parser)
    add_table_arguments(parser)


def read_labelled(arguments: argparse.Namespace, questions: Sequence[Question]) -> LabelledRows:
    """Open the table and return its inputs with their right answers."""
    named: dict[str, str] = {}
    for text in arguments.label:
        name, found, column = text.partition("=")
        if not found:
            raise UsageError(f"--label must be QUESTION=COLUMN, got {text!r}")
        if name in named:
            raise UsageError(f"--label {name!r} is given twice: {named[name]!r} and {column!r}")
        named[name] = column
    table = read_table(arguments)
    labels = label_columns(table, questions, named)
    return LabelledRows(table, arguments.column, tuple(questions), labels, arguments.limit)


@contextmanager
def show_progress() -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that draws how many inputs are done."""
    progress = RowProgress()

    def draw(n: int, total: int | None) -> None:
        progress(TableStep(n, n, n / total if total else 0.0, 0.0))

    try:
        yield draw
    finally:
        progress.erase()


@contextmanager
def report_left_out(rows: LabelledRows) -> Iterator[None]:
    """List the rows without a usable input on standard error, even if the work failed."""
    try:
        yield
    finally:
        if rows.left_out:
            shown = rows.left_out[:MAX_ROWS_NAMED]
            lines = [f"eliza-ffi: rows left out: {len(rows.left_out):,}"]
            lines += [f"  {printable(row)}" for row in shown]
            if len(rows.left_out) > len(shown):
                lines.append(f"  and {len(rows.left_out) - len(shown):,} more")
            print("\n".join(lines), file=sys.stderr)
