"""``eliza-ffi evaluate`` and ``calibrate``: commands about a labelled table."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Any

from ..checks import within
from ..decisions.answers import by_name
from ..decisions.examples import named_questions, option_names, read_examples
from ..decisions.questions import MultiLabel, Question, text_of
from ..evidence.calibration import METHODS, Calibration, QuestionCalibration, SuspiciousLabel
from ..evidence.cascade import TARGETS, Cascade, as_cascade_calibration
from ..learning.comparison import PairedComparison, compare_answers
from ..learning.fitting import HALF, calibrate
from ..learning.pictures import load_matplotlib
from ..learning.report import CascadeReport, DecisionReport, evaluate
from ..model import Model
from ..tables.labels import LabelledRows, label_columns
from ..terminal import counted, printable, terminal_width, text_table, wrap
from .compare import MAX_INPUT, MAX_ROWS, ask, comparison_json, comparison_text
from .console import (
    UsageError,
    add_model_arguments,
    add_options,
    given,
    open_model,
    print_json,
    print_warning,
    refuse,
    with_model,
)
from .files import check_output
from .progress import RowProgress
from .questions import (
    PROMPT_OPTIONS,
    add_asking_arguments,
    add_cascade_arguments,
    add_example_arguments,
    add_question_arguments,
    add_table_arguments,
    below_of,
    checked_prior,
    read_asking,
    read_calibration,
    read_cascade,
    read_examples_file,
    read_for_each,
    read_json_file,
    read_questions,
    read_table,
    read_targets,
)

RISKS = "--risk R|QUESTION=R ..."
RISK = (
    "find the probability above which at most this share of the answers is wrong; QUESTION=R for "
    "one of several questions"
)
CONFIDENCE = "the confidence of the result (default: 0.9)"

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
    add_cascade_arguments(parser)
    add_model_arguments(parser, decides=True)


def run_evaluate(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    check_output(arguments)
    rows = _read_labelled(arguments, questions)
    rows.only = "random"  # the chosen rows of a file of labels do not represent the table
    if arguments.then:
        return _evaluate_cascade(arguments, rows)
    below_of(arguments)
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
    _show_report(arguments, report, rows)
    if arguments.plots is not None:
        report.save_plots(arguments.plots)
    return 0


def _show_report(
    arguments: argparse.Namespace, report: DecisionReport | CascadeReport, rows: LabelledRows
) -> None:
    summary = {**report.to_json(), "left_out": rows.left_out}
    # Print before writing files, so that the report is not lost if the disk is full.
    if arguments.json:
        print_json(summary)
    else:
        print(report.text(terminal_width()))
    if arguments.output is not None:
        text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
        Path(arguments.output).write_text(text, encoding="utf-8")


def _evaluate_cascade(arguments: argparse.Namespace, rows: LabelledRows) -> int:
    refuse(arguments, ("plots", "reorder"), "cannot be combined with --then")
    fitted = as_cascade_calibration(arguments.calibration)
    cascade = _read_cascade(arguments, rows)
    report = evaluate(
        cascade,
        rows.questions,
        list(rows),
        calibration=fitted,
        bins=arguments.bins,
        on_skip=rows.leave_out,
    )
    _show_report(arguments, report, rows)
    _print_left_out(rows)
    return 0


def _read_cascade(arguments: argparse.Namespace, rows: LabelledRows) -> Cascade:
    settings = {
        **read_asking(arguments),
        "prior": checked_prior(arguments.prior),
        "examples": read_examples_file(arguments, rows.questions),
    }
    del settings["calibration"]
    return read_cascade(arguments, settings)


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Fit the probabilities of answers to a table with right answers. The model also learns "
        "from rows without an answer, and from a table without a column of answers."
    )
    _add_labelled_arguments(parser)
    add_options(
        parser,
        {
            f"--method {'|'.join(METHODS)}|auto": "the kind of calibration; auto: for each "
            "question, the kind that is best in cross-validation (default: auto)",
            "--prefer cheap|right": "right: use the best head; cheap: the cheapest of the heads "
            "that are about as good (default: cheap)",
            RISKS: RISK,
            "--confidence C": CONFIDENCE,
            "--each-option": "keep the risk for each right option, and not only on average; needs "
            "more rows of rare options",
            "--option-risk OPTION=SHARE ...": "accept at most this share of wrong answers among "
            "the answers with the option, instead of --risk; repeat for each option",
            "--costs FILE": "what wrong answers cost, as JSON: an object with right options as "
            "keys, whose values are objects with answers as keys; a missing wrong answer costs 1. "
            "--risk is then the highest mean cost of certified answers",
            "--review-cost COST|QUESTION=COST ...": "the cost of an answer by a person: decide "
            "leaves answers with a larger expected cost empty",
            "--compare FILE": "compare with this calibration, also of another wording, on the "
            "random rows of a file of labels, which the fit then leaves out",
            "--compare-model FILE": "the model of --compare (default: the model of the fit)",
            f"--certify {'|'.join(TARGETS)}": "instead of --risk: what to certify; with --then, "
            "the next model is asked as rarely as this allows (default with --then: agreement with "
            "all models together)",
            "--at P": "the minimum share to certify (default: 0.95)",
            "--of OPTION": "with --certify precision or recall: the option",
            "--adaptive": "with --then: ask the last model about no more rows than the certificate "
            "needs",
            "--teach": "with --then: fit the first model to the answers of the last one to half of "
            "the rows",
            "--json": "print JSON: the fitted calibration of each question",
        },
    )
    add_cascade_arguments(parser, decides=False)
    parser.set_defaults(method="auto", prefer="cheap", confidence=0.9)
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="write to FILE: the calibration"
    )
    parser.add_argument(
        "--suspicious",
        metavar="FILE",
        help="write to FILE: the answers of the table that may be wrong",
    )
    add_model_arguments(parser, decides=True)


def run_calibrate(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    check_output(arguments)
    check_output(arguments, "suspicious")
    review_cost = read_for_each(arguments.review_cost, "--review-cost", questions)
    costs = None
    if arguments.costs is not None:
        with within(arguments.costs):
            costs = read_json_file(Path(arguments.costs))
    earlier = _read_compared(arguments, questions)
    option_risks = _option_risks(arguments.option_risk, questions)
    risk = read_for_each(arguments.risk, "--risk", questions)
    rows = _read_labelled(arguments, questions, may_miss=True)
    if arguments.then:
        return _calibrate_cascade(arguments, rows)
    refuse(arguments, ("adaptive", "teach"), "requires --then")
    target = _target(arguments)
    random_rows: dict[str, Any] = {}  # the examples to compare with, by place
    after, has_risk = None, risk is not None or arguments.certify is not None
    with _open_for_rows(arguments, rows, read_asking(arguments)) as (model, settings):
        settings["scoring"] = settings["scoring"] or "constrained"
        examples = list(rows)
        if earlier is not None:
            is_random = [kind == "random" for kind in rows.kinds]
            random_rows = dict(compress(zip(rows.places, examples, strict=True), is_random))
            if not random_rows:
                raise UsageError("--compare needs random rows: a table that eliza-ffi label wrote")
            if not has_risk:  # otherwise they certify
                keep = [not each for each in is_random]
                examples = [*compress(examples, keep)]
                rows.places = [*compress(rows.places, keep)]
        if has_risk and any(rows.kinds):
            random = [i for i, kind in enumerate(rows.kinds) if kind == "random"]
            settings["random"] = random
            if n_none := sum(not examples[i][1] for i in random):
                print_warning(
                    f"{counted(n_none, 'random row')} without an answer cannot be certified: the "
                    f"certificate is for inputs that one of the options fits"
                )
        if option_risks is not None:
            settings["option_risks"] = option_risks
        calibration = calibrate(
            model,
            questions,
            examples,
            **given(arguments, "method", "prefer", "confidence", "each_option"),
            risk=risk,
            costs=costs,
            review_cost=review_cost,
            **target,
            on_warning=print_warning,
            **settings,
        )
        inputs = [input for input, _ in random_rows.values()]
        if earlier is not None:
            after, _ = ask(model, inputs, calibration.asked, calibration=calibration)
    calibration.save(arguments.output)
    comparison: tuple[PairedComparison, ...] = ()
    compared: dict[str, Any] = {}
    if earlier is not None and after is not None:
        path = arguments.compare_model or arguments.model
        with open_model(with_model(arguments, path)) as model:
            before, _ = ask(model, inputs, earlier.asked, calibration=earlier)
        targets = read_examples(questions, random_rows.values()).targets
        comparison = compare_answers(questions, targets, before, after)
        compared = comparison_json(comparison, list(random_rows), inputs)
    names = [name for name, _ in named_questions(questions)]
    of_labels = [name for name, q in by_name(questions).items() if isinstance(q, MultiLabel)]
    whole = {n: each.threshold for n, each in zip(of_labels, calibration.labels, strict=False)}
    if arguments.json:
        fitted = dict(zip(names, map(_facts, calibration.questions), strict=True))
        of_whole = {name: {"threshold": each.to_dict()} for name, each in whole.items()}
        print_json(fitted | of_whole | ({"compared": compared} if compared else {}))
    else:
        print(_table(calibration, names))
        for name, question in zip(names, calibration.questions, strict=True):
            if question.rows is not None and question.rows.head is not None:
                print(wrap(printable(f"{name}: {question.rows}"), terminal_width()))
        of_rows = "random rows" if any(rows.kinds) else HALF
        thresholds = [each.threshold for each in calibration.questions]
        certified = zip(names, thresholds, strict=True)
        of_all = ((f"{name}, all labels", threshold) for name, threshold in whole.items())
        for name, found in (*certified, *of_all):
            if found is not None and found.threshold is not None:
                print(wrap(printable(f"{name} ({of_rows}): {found}"), terminal_width()))
        if comparison:
            print("\n" + comparison_text(comparison, compared, "random row"))
        if calibration.suspicious_labels:
            print(_suspicious_table(calibration.suspicious_labels, rows.places))
    if arguments.suspicious is not None:
        with Path(arguments.suspicious).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(_suspicious_rows(calibration.suspicious_labels, rows.places))
    return 0


def _read_compared(
    arguments: argparse.Namespace, questions: Sequence[Question]
) -> Calibration | None:
    """Return the calibration to compare with, if it has the same options."""
    if arguments.compare is None:
        refuse(arguments, ("compare_model",), "requires --compare")
        return None
    earlier = read_calibration(arguments.compare)
    expected = [option_names(question) for _, question in named_questions(questions)]
    if [option_names(question) for question in earlier.asked] != expected:
        raise UsageError(f"--compare {arguments.compare} is for questions with other options")
    return earlier


def _option_risks(
    given: Sequence[str] | None, questions: Sequence[Question]
) -> dict[Any, float] | None:
    """Return the share of wrong answers to accept for each option that was given one."""
    if given is None:
        return None
    values = {
        name: value
        for _, question in named_questions(questions)
        for name, value in zip(option_names(question), question.values, strict=True)
    }
    risks = {}
    for text in given:
        name, _, share = text.rpartition("=")
        if name not in values:
            names = ", ".join(map(repr, values))
            raise UsageError(
                f"--option-risk must be OPTION=SHARE with one of the options {names}, got {text!r}"
            )
        try:
            risks[values[name]] = float(share)
        except ValueError:
            raise UsageError(f"--option-risk {name}: expected a number, got {share!r}") from None
    return risks


def _calibrate_cascade(arguments: argparse.Namespace, rows: LabelledRows) -> int:
    names = ("risk", "suspicious", "compare", "option_risk", "costs", "review_cost")
    refuse(arguments, names, "cannot be combined with --then")
    fitted = calibrate(
        _read_cascade(arguments, rows),
        rows.questions,
        list(rows),
        **{"target": "agreement", **_target(arguments)},
        **given(arguments, "adaptive", "teach"),
        confidence=arguments.confidence,
        on_skip=rows.leave_out,
    )
    fitted.save(arguments.output)
    if arguments.json:
        print_json(json.loads(Path(arguments.output).read_text(encoding="utf-8")))
    else:
        print(wrap(printable(str(fitted)), terminal_width()))
    _print_left_out(rows)
    return 0


def _target(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the target of ``--certify``, as keyword arguments of `calibrate`."""
    if arguments.certify is None and not arguments.then:
        refuse(arguments, ("at", "of"), "requires --certify")
    found = {"target": arguments.certify, "at": arguments.at, "option": arguments.of}
    return {name: value for name, value in found.items() if value is not None}


def _suspicious_rows(labels: Sequence[SuspiciousLabel], places: Sequence[str]) -> list[list[Any]]:
    """Return the labels that may be wrong as a table, below the names of its columns."""
    rows: list[list[Any]] = [["place", "question", "given", "expected", "probability", "input"]]
    for each in labels:
        answers = text_of(each.given), text_of(each.expected)
        rows.append([places[each.row], each.question, *answers, each.probability, each.input])
    return rows


def _suspicious_table(labels: Sequence[SuspiciousLabel], places: Sequence[str]) -> str:
    head, *rows = _suspicious_rows(labels[:MAX_ROWS], places)
    for row in rows:
        row[-2:] = f"{row[-2]:.3f}", printable(" ".join(row[-1].split())[:MAX_INPUT])
    text = f"{counted(len(labels), 'answer')} may be wrong, the most suspicious first:"
    return f"\n{text}\n{text_table([head, *rows], left=6, width=terminal_width())}"


def _facts(fitted: QuestionCalibration) -> dict[str, object]:
    return {
        "method": fitted.method,
        "temperature": fitted.temperature,
        "at_bound": fitted.is_at_bound,
        "examples": fitted.n_examples,
        "nll": dict(fitted.nll),
        "cost": fitted.cost,
        "rows": fitted.rows and {**vars(fitted.rows), "head": fitted.rows.head is not None},
        "threshold": None if fitted.threshold is None else fitted.threshold.to_dict(),
        "automation": None if fitted.automation is None else fitted.automation.to_dict(),
    }


def _table(calibration: Calibration, names: list[str]) -> str:
    head = ["question", "method", "temperature", "examples", "accuracy", "at 5 % error"]
    rows = [[*head, "NLL", "uncalibrated", "cost"]]
    for name, fitted in zip(names, calibration.questions, strict=True):
        rows.append(
            [
                name,
                fitted.method,
                _temperature(fitted),
                str(fitted.n_examples),
                "" if fitted.automation is None else f"{fitted.automation.accuracy:.1%}",
                "" if fitted.automation is None else str(fitted.automation),
                _number(fitted.nll.get(fitted.method)),
                _number(fitted.nll.get("none")),
                f"{fitted.cost:.2f}",
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


def _read_labelled(
    arguments: argparse.Namespace, questions: Sequence[Question], *, may_miss: bool = False
) -> LabelledRows:
    table = read_table(arguments)
    labels = label_columns(table, questions, read_targets(arguments), may_miss=may_miss)
    return LabelledRows(table, arguments.column, tuple(questions), labels, arguments.limit)


@contextmanager
def _open_for_rows(
    arguments: argparse.Namespace, rows: LabelledRows, asked: dict[str, Any]
) -> Iterator[tuple[Model, dict[str, Any]]]:
    """Open the model; yield it with the settings for asking about the rows, and draw the progress.
    At the end, list the rows without a usable input on standard error, even if the work failed."""
    progress = RowProgress()
    settings = {
        **{name: asked[name] for name in PROMPT_OPTIONS},
        "scoring": asked["scoring"],
        "prior": checked_prior(arguments.prior),
        "examples": read_examples_file(arguments, rows.questions),
        "progress": progress.count,
        "on_skip": rows.leave_out,
    }
    try:
        with open_model(arguments, arguments.n_slots) as model:
            progress.begin()
            yield model, settings
    finally:
        progress.erase()
        _print_left_out(rows)


def _print_left_out(rows: LabelledRows) -> None:
    if rows.left_out:
        shown = rows.left_out[:MAX_ROWS_NAMED]
        lines = [f"eliza-ffi: rows left out: {len(rows.left_out):,}"]
        lines += [f"  {printable(row)}" for row in shown]
        if len(rows.left_out) > len(shown):
            lines.append(f"  and {len(rows.left_out) - len(shown):,} more")
        print("\n".join(lines), file=sys.stderr)
