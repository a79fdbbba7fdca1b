"""``eliza-ffi count``: how often each answer is right among the rows of a decided table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..decisions.prompts import input_text
from ..errors import InvalidArgumentError
from ..learning.counting import Share, shares_of
from ..tables import open_table
from ..tables.columns import ROW, cell_text
from ..tables.decider import input_of
from ..tables.label_file import KIND, read_kinds
from ..tables.labels import is_label_file, number_of, numbered_rows
from ..tables.rows import check_column
from ..terminal import printable, terminal_width, text_table, wrap
from .console import add_options, print_json
from .labelled import CONFIDENCE


def add_count_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Estimate how often each answer is right among the rows of an output of eliza-ffi decide. "
        "Labels of random rows correct the shares of the answers and give intervals."
    )
    parser.add_argument("table", metavar="TABLE", help="an output of eliza-ffi decide")
    parser.add_argument(
        "--answers", metavar="NAME", required=True, help="the column with the answers"
    )
    add_options(
        parser,
        {
            "--random-labels FILE": "a file of eliza-ffi label for the same table, whose random "
            "rows are used",
            "--by NAME": "count each value of this column separately",
            "--confidence C": CONFIDENCE,
            "--json": "print JSON: the shares",
        },
    )
    parser.set_defaults(confidence=0.9)


def run_count(arguments: argparse.Namespace) -> int:
    table, by = open_table(Path(arguments.table), None), arguments.by
    wanted = {arguments.answers, *([] if by is None else [by])}
    for name in (ROW, *wanted):
        check_column(table, name)
    column, told = _random(arguments)
    wanted |= {column} & {*table.all_columns()}
    answers, values, labels = [], [], {}
    for place, (number, row) in enumerate(numbered_rows(table, wanted)):
        answers.append(_answers(row.fields.get(arguments.answers)))
        values.append(None if by is None else cell_text(row.fields.get(by)))
        if number in told:
            input, labels[place] = told.pop(number)
            if column in wanted and input_text(input_of(row, column)) != input:
                raise InvalidArgumentError(
                    f"{row.place}: row {number} has another {column!r} in "
                    f"{arguments.random_labels}, which is about another table"
                )
    for number in told:
        reason = f"row {number} is not in {arguments.table}"
        raise InvalidArgumentError(f"{arguments.random_labels}: {reason}")
    options = sorted({each for found in (*answers, *labels.values()) for each in found})
    groups = None if by is None else values
    shares = shares_of(answers, options, labels, groups, arguments.confidence)
    if arguments.json:
        print_json({"shares": [vars(each) for each in shares]})
    else:
        print(_text(shares))
    return 0


def _answers(cell: Any) -> tuple[str, ...]:
    listed = cell if isinstance(cell, list) else [] if cell in (None, "") else [cell]
    return tuple(map(cell_text, listed))


def _random(arguments: argparse.Namespace) -> tuple[str, dict[int, tuple[str, tuple[str, ...]]]]:
    """Return the column of the inputs, and the input and last label of each random row."""
    if arguments.random_labels is None:
        return "", {}
    table = open_table(path := Path(arguments.random_labels), None)
    if not is_label_file(table) or len(table.columns) < 4:
        raise InvalidArgumentError(
            f"{path} is not a file of eliza-ffi label: expected the columns {ROW}, the input, the "
            f"answers and {KIND}, found {', '.join(table.columns)}"
        )
    _, column, *names, _ = table.columns
    name = names[0] if len(names) == 1 else arguments.answers
    if name not in names:
        name = name.removesuffix("_label")  # of a score
        check_column(table, name)
    kinds: dict[int, str] = {}
    found: dict[int, tuple[str, tuple[str, ...]]] = {}
    for row in table.rows(columns=set(table.columns)):
        if row.error is None and not row.fields.get(ROW):  # of an input in no table
            continue
        number = number_of(row)
        given = [cell_text(row.fields.get(each)) for each in names]
        kind, answers = read_kinds(row.place, given, row.fields.get(KIND))
        found.pop(number, None)
        answer = dict(zip(names, answers, strict=False)).get(name)  # None: skipped or not asked
        if kinds.setdefault(number, kind) == "random" and answer is not None:
            found[number] = cell_text(row.fields.get(column)), _answers(answer)
    return column, found


def _text(shares: list[Share]) -> str:
    head = ["answer", "share", "interval", "rows", "labels"]
    rows = []
    for each in shares:
        low_high = "-" if each.interval is None else "{:.1%} to {:.1%}".format(*each.interval)
        group = [] if each.group is None else [str(each.group)]
        counts = [f"{each.n_rows:,}", f"{each.n_labels:,}"]
        rows.append([*group, each.answer, f"{each.share:.1%}", low_high, *counts])
    by = ["group"] if shares and shares[0].group is not None else []
    shown = text_table([[*by, *head], *rows], left=1 + len(by), width=terminal_width())
    reasons = dict.fromkeys(each.reason for each in shares if each.reason)
    notes = [
        wrap(printable(f"no interval: {reason}; eliza-ffi label labels rows"), terminal_width())
        for reason in reasons
    ]
    return "\n".join([shown, *notes])
