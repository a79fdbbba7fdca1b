"""``eliza-ffi count``: how often each answer is right among the rows of a decided table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import InvalidArgumentError
from ..learning.counting import Share, shares_of
from ..tables import open_table
from ..tables.columns import ROW, cell_text
from ..tables.label_file import KIND
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
    wanted = [arguments.answers, *([] if by is None else [by])]
    for name in (ROW, *wanted):
        check_column(table, name)
    rows = list(table.rows(columns={ROW, *wanted}))
    answers = [_answers(row.fields.get(arguments.answers)) for row in rows]
    groups = None if by is None else [cell_text(row.fields.get(by)) for row in rows]
    places = {int(row.fields[ROW]): place for place, row in enumerate(rows)}
    labels = {}
    for number, label in _random(arguments).items():
        if number not in places:
            raise InvalidArgumentError(
                f"{arguments.random_labels}: row {number} is not in {arguments.table}"
            )
        labels[places[number]] = label
    options = sorted({each for found in (*answers, *labels.values()) for each in found})
    shares = shares_of(answers, options, labels, groups, arguments.confidence)
    if arguments.json:
        print_json({"shares": [vars(each) for each in shares]})
    else:
        print(_text(shares))
    return 0


def _answers(cell: Any) -> tuple[str, ...]:
    listed = cell if isinstance(cell, list) else [] if cell in (None, "") else [cell]
    return tuple(map(cell_text, listed))


def _random(arguments: argparse.Namespace) -> dict[int, tuple[str, ...]]:
    """Return the labels of the random rows by number; the last one of a row counts."""
    if arguments.random_labels is None:
        return {}
    path = Path(arguments.random_labels)
    table = open_table(path, None)
    columns = table.all_columns()
    if len(columns) != 4 or (columns[0], columns[-1]) != (ROW, KIND):
        raise InvalidArgumentError(
            f"{path} is not a file of eliza-ffi label: expected the columns {ROW}, the input, the "
            f"answer and {KIND}, found {', '.join(columns)}"
        )
    kinds: dict[int, str] = {}
    found: dict[int, tuple[str, ...]] = {}
    for row in table.rows(columns=set(columns)):
        if row.error is not None:
            raise InvalidArgumentError(f"{row.place}: {row.error}")
        if not row.fields[ROW]:  # of an input in no table
            continue
        number = int(row.fields[ROW])
        kind, _, rest = row.fields[KIND].partition(", ")
        found.pop(number, None)
        if kinds.setdefault(number, kind) == "random" and rest != "skipped":
            found[number] = _answers(row.fields[columns[2]])
    return found


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
