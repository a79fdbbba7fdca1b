"""``eliza-ffi evaluate``: measure decisions on a table with right answers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..decisions.learning.pictures import load_matplotlib
from ..decisions.learning.report import evaluate
from ..terminal import terminal_width
from .console import UsageError, add_model_arguments, print_json
from .files import check_output
from .labelled import add_labelled_arguments, open_for_rows, read_labelled
from .questions import read_asking, read_questions

__all__ = ["add_evaluate_arguments", "run_evaluate"]


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_labelled_arguments(parser)
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="apply this calibration, a file written by eliza-ffi calibrate",
    )
    parser.add_argument(
        "--reorder",
        type=int,
        metavar="N",
        help="ask with N different orders of the options, and count the answers that change "
        "(default: 2; 1 for a decision model)",
    )
    parser.add_argument(
        "--bins",
        type=int,
        default=10,
        metavar="N",
        help="number of probability bins for the ECE (default: 10)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: the report instead of a table"
    )
    parser.add_argument("--output", metavar="FILE", help="write to FILE: the report as JSON")
    parser.add_argument(
        "--plots",
        metavar="FOLDER",
        help="draw reliability diagrams and coverage curves into FOLDER; requires the extra 'plot'",
    )
    add_model_arguments(parser)


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Decide every row, and print how good the answers are."""
    for name in ("reorder", "bins"):
        n = getattr(arguments, name)
        if n is not None and n < 1:
            raise UsageError(f"--{name} must be 1 or more, got {n}")
    questions = read_questions(arguments)
    check_output(arguments)
    rows = read_labelled(arguments, questions)
    asked = read_asking(arguments, arguments.calibration)
    if arguments.plots is not None:
        load_matplotlib()  # fail now if it is missing, not after minutes of work
        Path(arguments.plots).mkdir(parents=True, exist_ok=True)
    with open_for_rows(arguments, rows, asked) as (model, settings):
        report = evaluate(
            model,
            questions,
            rows,
            calibration=asked["calibration"],
            reorder=arguments.reorder,
            bins=arguments.bins,
            **settings,
        )
    summary = {**report.to_json(), "left_out": rows.left_out}
    # Print before writing files, so that the report is not lost if the disk is full.
    if arguments.json:
        print_json(summary)
    else:
        print(report.text(terminal_width()))
    if arguments.output is not None:
        text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
        Path(arguments.output).write_text(text, encoding="utf-8")
    if arguments.plots is not None:
        report.save_plots(arguments.plots)
    return 0
