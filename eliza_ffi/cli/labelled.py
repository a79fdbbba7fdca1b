"""``eliza-ffi evaluate`` and ``calibrate``: commands about a table with right answers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..decisions.examples import named_questions
from ..decisions.learning.calibration import METHODS, Calibration, QuestionCalibration
from ..decisions.learning.fitting import calibrate
from ..decisions.learning.pictures import load_matplotlib
from ..decisions.learning.report import evaluate
from ..decisions.questions import Question
from ..model import Model
from ..tables import TableStep
from ..tables.labels import LabelledRows, label_columns
from ..terminal import printable, terminal_width, text_table, wrap
from .console import UsageError, add_model_arguments, add_options, given, open_model, print_json
from .files import check_output
from .progress import RowProgress
from .questions import (
    add_asking_arguments,
    add_example_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_examples_file,
    read_questions,
    read_table,
)

MAX_ROWS_NAMED = 10
"""Maximum number of rows without a usable input that are listed one by one."""


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure decisions on a table with the right answers: accuracy, NLL, Brier score, ECE, and "
        "how many answers change with the order of the options."
    )
    _add_labelled_arguments(parser)
    add_options(
        parser,
        {
            "--calibration FILE": "apply this calibration, a file written by eliza-ffi calibrate",
            "--reorder N": "ask with N different orders of the options, and count the answers "
            "that change (default: 2; 1 for a decision model)",
            "--bins N": "number of probability bins for the ECE (default: 10)",
            "--json": "print JSON: the report instead of a table",
            "--output FILE": "write to FILE: the report as JSON",
            "--plots FOLDER": "draw reliability diagrams and coverage curves into FOLDER; "
            "requires the extra 'plot'",
        },
    )
    parser.set_defaults(bins=10)
    add_model_arguments(parser)


def run_evaluate(arguments: argparse.Namespace) -> int:
    for name in ("reorder", "bins"):
        n = getattr(arguments, name)
        if n is not None and n < 1:
            raise UsageError(f"--{name} must be 1 or more, got {n}")
    questions = read_questions(arguments)
    check_output(arguments)
    rows = _read_labelled(arguments, questions)
    asked = read_asking(arguments, arguments.calibration)
    if arguments.plots is not None:
        load_matplotlib()  # fail now if it is missing, not after minutes of work
        Path(arguments.plots).mkdir(parents=True, exist_ok=True)
    with _open_for_rows(arguments, rows, asked) as (model, settings):
        report = evaluate(
            model,
            questions,
            rows,
            calibration=asked["calibration"],
            **given(arguments, "reorder", "bins"),
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


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    _add_labelled_arguments(parser)
    add_options(
        parser,
        {
            f"--method {'|'.join(METHODS)}|auto": "the kind of calibration; auto: for each "
            "question, the kind that is best in cross-validation (default: auto)",
            "--risk R": "find the probability above which at most this share of the answers is "
            "wrong; uses half of the rows for it",
            "--confidence C": "how sure the risk and the flips must be (default: 0.9)",
            "--max-flips F": "with --orders: ask fewer orders if at most this share of the "
            "answers changes",
            "--json": "print JSON: the fitted calibration of each question",
        },
    )
    parser.set_defaults(method="auto", confidence=0.9)
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="write to FILE: the calibration"
    )
    add_model_arguments(parser)


def run_calibrate(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    check_output(arguments)
    rows = _read_labelled(arguments, questions)
    with _open_for_rows(arguments, rows, read_asking(arguments)) as (model, settings):
        settings["rule"] = settings["rule"] or "constrained"
        calibration = calibrate(
            model,
            questions,
            rows,
            **given(arguments, "method", "risk", "confidence", "max_flips"),
            **settings,
        )
    names = [name for name, _ in named_questions(questions)]
    if arguments.json:
        fitted = dict(zip(names, map(_facts, calibration.questions), strict=True))
        print_json(fitted)
    else:
        print(_table(calibration, names))
        for name, question in zip(names, calibration.questions, strict=True):
            if question.threshold is not None:
                text = f"{name} (the half of the rows that was not used for the fit): "
                print(wrap(printable(f"{text}{question.threshold}"), terminal_width()))
    calibration.save(arguments.output)
    return 0


def _facts(fitted: QuestionCalibration) -> dict[str, object]:
    return {
        "method": fitted.method,
        "temperature": fitted.temperature,
        "at_bound": fitted.is_at_bound,
        "examples": fitted.n_examples,
        "nll": dict(fitted.nll),
        "margin": fitted.margin,
        "threshold": None if fitted.threshold is None else fitted.threshold.to_dict(),
    }


def _table(calibration: Calibration, names: list[str]) -> str:
    rows = [["question", "method", "temperature", "examples", "NLL", "uncalibrated"]]
    for name, fitted in zip(names, calibration.questions, strict=True):
        rows.append(
            [
                name,
                fitted.method,
                _temperature(fitted),
                str(fitted.n_examples),
                _number(fitted.nll.get(fitted.method)),
                _number(fitted.nll.get("none")),
            ]
        )
    return text_table(rows, left=2, width=terminal_width())


def _temperature(fitted: QuestionCalibration) -> str:
    if not fitted.method.endswith("temperature"):
        return ""
    return f"{fitted.temperature:.2f}" + (", at its bound" if fitted.is_at_bound else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _add_labelled_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "table", metavar="TABLE", help="a .csv, .tsv, .jsonl or .parquet file with right answers"
    )
    add_question_arguments(parser)
    add_options(
        parser,
        {
            "--target QUESTION=COLUMN ...": "the column with the right answers to a question; "
            "repeat for each question (default: the column with the question's name)"
        },
    )
    parser.set_defaults(target=[])
    add_asking_arguments(parser)
    add_example_arguments(parser)
    add_table_arguments(parser)


def _read_labelled(arguments: argparse.Namespace, questions: Sequence[Question]) -> LabelledRows:
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
def _open_for_rows(
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
