"""Shared by ``evaluate`` and ``calibrate``: a table with right answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..decisions.questions import Question
from ..model import Model
from ..tables import TableStep
from ..tables.labels import LabelledRows, label_columns
from ..terminal import printable
from .console import UsageError, open_model
from .progress import RowProgress
from .questions import (
    add_asking_arguments,
    add_example_arguments,
    add_question_arguments,
    add_table_arguments,
    read_examples_file,
    read_table,
)

__all__ = ["add_labelled_arguments", "open_for_rows", "read_labelled"]

MAX_ROWS_NAMED = 10
"""Maximum number of rows without a usable input that are listed one by one."""


def add_labelled_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the table, its right answers, the questions and the prompts."""
    parser.add_argument(
        "table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file with right answers"
    )
    add_question_arguments(parser)
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="QUESTION=COLUMN",
        help="the column with the right answers to a question; repeat for each question (default: "
        "the column with the question's name)",
    )
    add_asking_arguments(parser)
    add_example_arguments(parser)
    add_table_arguments(parser)


def read_labelled(arguments: argparse.Namespace, questions: Sequence[Question]) -> LabelledRows:
    """Open the table and return its inputs with their right answers."""
    named: dict[str, str] = {}
    for text in arguments.target:
        name, found, column = text.partition("=")
        if not found:
            raise UsageError(f"--target must be QUESTION=COLUMN, got {text!r}")
        if name in named:
            raise UsageError(f"--target {name!r} is given twice: {named[name]!r} and {column!r}")
        named[name] = column
    table = read_table(arguments)
    labels = label_columns(table, questions, named)
    return LabelledRows(table, arguments.column, tuple(questions), labels, arguments.limit)


@contextmanager
def open_for_rows(
    arguments: argparse.Namespace, rows: LabelledRows, asked: dict[str, Any]
) -> Iterator[tuple[Model, dict[str, Any]]]:
    """Open the model; yield it with the settings for asking about the rows.

    Draw the progress. At the end, list the rows without a usable input on standard error, even if
    the work failed.
    """
    progress = RowProgress()
    prompts = ("answer_style", "orders", "prompt_order", "prompt_format")
    settings = {
        **{name: asked[name] for name in prompts},
        "rule": asked["scoring"],
        "prior": _checked_prior(arguments.prior),
        "prompt_examples": read_examples_file(arguments, rows.questions),
        "progress": lambda n, total: progress(TableStep(n, n, n / total if total else 0.0, 0.0)),
        "on_skip": rows.leave_out,
    }
    try:
        with open_model(arguments, arguments.n_slots) as model:
            yield model, settings
    finally:
        progress.erase()
        if rows.left_out:
            shown = rows.left_out[:MAX_ROWS_NAMED]
            lines = [f"eliza-ffi: rows left out: {len(rows.left_out):,}"]
            lines += [f"  {printable(row)}" for row in shown]
            if len(rows.left_out) > len(shown):
                lines.append(f"  and {len(rows.left_out) - len(shown):,} more")
            print("\n".join(lines), file=sys.stderr)


def _checked_prior(prior: str | None) -> str | None:
    if prior not in (None, "auto", "options", "none"):
        raise UsageError(f"--prior must be auto, options or none here, got {prior!r}")
    return prior
