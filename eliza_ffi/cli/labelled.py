"""What ``evaluate`` and ``calibrate`` share: a table with right answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..decisions.questions import Question
from ..decisions.table import TableStep
from ..decisions.table.labels import LabelledRows, label_columns
from .console import UsageError, printable
from .progress import RowProgress
from .questions import (
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_table,
)

__all__ = ["add_labelled_arguments", "counting", "read_labelled", "tell_left_out"]


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


def tell_left_out(rows: LabelledRows) -> None:
    """Say on standard error which rows had no usable input."""
    if rows.left_out:
        print(
            printable(
                f"eliza-ffi: {len(rows.left_out):,} rows left out, such as {rows.left_out[0]}"
            ),
            file=sys.stderr,
        )
