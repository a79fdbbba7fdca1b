"""``eliza-ffi calibrate``: fit a calibration to a table with right answers."""

from __future__ import annotations

import argparse

from ..decisions.examples import named_questions
from ..decisions.learning.calibration import METHODS, Calibration, QuestionCalibration
from ..decisions.learning.fitting import calibrate
from ..terminal import printable, terminal_width, text_table, wrap
from .console import add_model_arguments, print_json, probability
from .files import check_output
from .labelled import add_labelled_arguments, open_for_rows, read_labelled
from .questions import read_asking, read_questions

__all__ = ["add_calibrate_arguments", "run_calibrate"]


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_labelled_arguments(parser)
    parser.add_argument(
        "--method",
        choices=(*METHODS, "auto"),
        default="auto",
        help="the kind of calibration; auto: for each question, the kind that is best in "
        "cross-validation (default: auto)",
    )
    parser.add_argument(
        "--risk",
        type=probability,
        metavar="R",
        help="find the probability above which at most this share of the answers is wrong; uses "
        "half of the rows for it",
    )
    parser.add_argument(
        "--confidence",
        type=probability,
        default=0.9,
        metavar="C",
        help="how sure the risk and the flips must be (default: 0.9)",
    )
    parser.add_argument(
        "--max-flips",
        type=probability,
        metavar="F",
        help="with --orders: ask fewer orders if at most this share of the answers changes",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: the fitted calibration of each question"
    )
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="write to FILE: the calibration"
    )
    add_model_arguments(parser)


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Fit a calibration to the table, save it, and print what was fitted."""
    questions = read_questions(arguments)
    check_output(arguments)
    rows = read_labelled(arguments, questions)
    with open_for_rows(arguments, rows, read_asking(arguments)) as (model, settings):
        settings["rule"] = settings["rule"] or "constrained"
        calibration = calibrate(
            model,
            questions,
            rows,
            method=arguments.method,
            risk=arguments.risk,
            confidence=arguments.confidence,
            max_flips=arguments.max_flips,
            **settings,
        )
    names = [name for name, _ in named_questions(questions)]
    if arguments.json:
        fitted = {name: _facts(calibration, place) for place, name in enumerate(names)}
        print_json(fitted)
    else:
        print(_table(calibration, names))
        for name, question in zip(names, calibration.questions, strict=True):
            if question.threshold is not None:
                text = f"{name}, with the half of the rows that was not used for the fit: "
                print(wrap(printable(f"{text}{question.threshold}"), terminal_width()))
    calibration.save(arguments.output)
    return 0


def _facts(calibration: Calibration, place: int) -> dict[str, object]:
    fitted = calibration.questions[place]
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
