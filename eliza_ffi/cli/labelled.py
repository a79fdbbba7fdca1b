"""What ``evaluate`` and ``calibrate`` share: a table with right answers."""

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

__all__ = ["add_labelled_arguments", "counting", "read_labelled", "telling"]

MOST_LEFT_OUT = 10
"""Rows without a usable input that are named."""


def add_labelled_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the table, its labels, the questions, and how they are asked."""
    parser.add_argument(
        "table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file with right answers"
    )
    add_question_arguments(parser)
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="QUESTION=COLUMN",
        help="the column with a question's right answers; repeated (the one called like it)",
    )
    add_asking_arguments(parser)
    add_table_arguments(parser)


def read_labelled(arguments: argparse.Namespace, questions: Sequence[Question]) -> LabelledRows:
    """Return the table's inputs with their right answers."""
    named: dict[str, str] = {}
    for text in arguments.label:
        name, found, column = text.partition("=")
        if not found:
            raise UsageError(f"--label is QUESTION=COLUMN, not {text!r}")
        if name in named:
            raise UsageError(f"--label {name!r} is given twice: {named[name]!r} and {column!r}")
        named[name] = column
    table = read_table(arguments)
    labels = label_columns(table, questions, named)
    return LabelledRows(table, arguments.column, tuple(questions), labels, arguments.limit)


@contextmanager
def counting() -> Iterator[Callable[[int, int | None], None]]:
    """Draw how many inputs were asked about."""
    progress = RowProgress()

    def draw(n: int, total: int | None) -> None:
        progress(TableStep(n, n, n / total if total else 0.0, 0.0))

    try:
        yield draw
    finally:
        progress.erase()


@contextmanager
def telling(rows: LabelledRows) -> Iterator[None]:
    """Say at the end on standard error, whatever it is, which rows had no usable input."""
    try:
        yield
    finally:
        if rows.left_out:
            shown = rows.left_out[:MOST_LEFT_OUT]
            lines = [f"eliza-ffi: rows left out: {len(rows.left_out):,}"]
            lines += [f"  {printable(row)}" for row in shown]
            if len(rows.left_out) > len(shown):
                lines.append(f"  and {len(rows.left_out) - len(shown):,} more")
            print("\n".join(lines), file=sys.stderr)
