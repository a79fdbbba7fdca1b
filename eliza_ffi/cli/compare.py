"""``eliza-ffi compare``: whether another model, wording or calibration is better or worse."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_file
from ..decisions.answers import Decision
from ..decisions.examples import named_questions, option_names, read_examples
from ..decisions.prompts import input_text
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from ..evidence.calibration import Calibration
from ..learning.comparison import (
    CONFIDENCE,
    Indices,
    PairedComparison,
    compare_answers,
    option_indices,
)
from ..model import Model
from ..tables import InputTable, open_table
from ..tables.decider import input_of
from ..tables.file_formats import FORMATS
from ..tables.labels import LabelledRows, given_answers, is_label_file, label_columns
from ..terminal import counted, printable, terminal_width, text_table, wrap
from .console import (
    UsageError,
    add_model_arguments,
    add_options,
    open_model,
    print_json,
    with_model,
)
from .files import check_output, read_text
from .progress import RowProgress
from .questions import (
    PROMPT_OPTIONS,
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_calibration,
    read_question_file,
    read_questions,
    read_table,
    read_targets,
)

SIDES = ("before", "after")

MAX_ROWS, MAX_INPUT = 10, 60
"""Maximum number of rows that are listed, and of characters of their inputs."""

VERDICTS = {
    "better": "The new answers are better.",
    "worse": "The new answers are worse.",
    "unclear": "No significant difference.",
}


@dataclass(frozen=True, kw_only=True)
class _SetUp:
    """What a command line compares: a table of answers, or questions for a model."""

    path: str
    table: InputTable | None = None
    model: str | None = None  # given instead of --model
    questions: tuple[Question, ...] | None = None
    calibration: Calibration | None = None


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare two sets of answers to the same questions with right answers: an exact paired "
        "test says whether the new answers are better or worse. BEFORE and AFTER are outputs of "
        "eliza-ffi decide, calibrations, files with questions, or models, which are then asked."
    )
    for side in SIDES:
        parser.add_argument(
            side,
            metavar=side.upper(),
            help="a table of answers (.csv, .tsv, .jsonl or .parquet), a calibration (.json), "
            "questions (.json or .toml), or a model",
        )
    add_options(
        parser,
        {
            "--labels TABLE": "a file of eliza-ffi label, whose random rows are used, or another "
            "table with right answers to all rows",
            "--target QUESTION=COLUMN ...": "the column with the right answers to a question; "
            "repeat for each question (in --labels; default: the column with the question's name)",
            "--after-model PATH|NAME": "the model of AFTER (default: the model of --model)",
            "--json": "print JSON: the comparison",
            "--output FILE": "write to FILE: all rows whose answer differs, as CSV",
        },
    )
    parser.set_defaults(target=[])
    add_question_arguments(parser)
    add_asking_arguments(parser)
    add_table_arguments(parser)
    add_model_arguments(parser, decides=True)


def run_compare(arguments: argparse.Namespace) -> int:
    if arguments.labels is None:
        raise UsageError("--labels is required: a table with right answers")
    check_output(arguments)
    sides = [_set_up(getattr(arguments, side)) for side in SIDES]
    _check_models(arguments, sides)
    questions = _questions(arguments, sides)
    arguments.table = arguments.labels
    if arguments.column is None and is_label_file(first := open_table(Path(arguments.labels))):
        arguments.column = first.columns[1]
    labels = read_table(arguments)
    targets = label_columns(labels, questions, read_targets(arguments))
    rows = LabelledRows(
        labels, arguments.column, questions, targets, arguments.limit, only="random"
    )
    examples = list(rows)
    if not examples:
        reason = rows.left_out[0] if rows.left_out else "it has no random rows"
        raise InvalidArgumentError(f"{arguments.labels} has no row to compare: {reason}")
    inputs = [input for input, _ in examples]
    tables = _table_answers(sides, questions, rows, inputs)
    answers: list[Indices] = []
    costs: dict[str, dict[str, Any] | None] = {}  # a table does not tell them
    for name, side in zip(SIDES, sides, strict=True):
        if side.table is not None:
            found, costs[name] = tables[side.path], None
        else:
            found, costs[name] = _asked(arguments, name, side, questions, inputs)
        answers.append(found)
    comparison = compare_answers(questions, read_examples(questions, examples).targets, *answers)
    shown = comparison_json(comparison, rows.places, inputs)
    if arguments.json:
        print_json({"questions": shown, "costs": costs})
    else:
        print(comparison_text(comparison, shown, "random row" if is_label_file(labels) else "row"))
        if any(costs.values()):
            print(_costs_text(costs, len(inputs)))
    if arguments.output is not None:
        with Path(arguments.output).open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(["question", "place", "right", *SIDES, "input"])
            for name, each in shown.items():
                table.writerows([name, *row.values()] for row in each["changed"])
    return 0


def _set_up(path: str) -> _SetUp:
    suffix = Path(path).suffix.lower()
    if suffix in FORMATS:
        return _SetUp(path=path, table=open_table(Path(path)))
    if suffix == ".toml":
        return _SetUp(path=path, questions=read_question_file(Path(path)))
    if suffix != ".json":
        return _SetUp(path=path, model=path)
    check_file(Path(path), "a calibration or questions")
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is not JSON: {error}") from None
    if isinstance(content, Mapping) and isinstance(content.get("format"), str):
        calibration = read_calibration(path)
        return _SetUp(path=path, questions=calibration.asked, calibration=calibration)
    return _SetUp(path=path, questions=read_question_file(Path(path)))


def _check_models(arguments: argparse.Namespace, sides: Sequence[_SetUp]) -> None:
    """Reject options of a model that nothing would read."""
    is_asked = [side.table is None and side.model is None for side in sides]
    if arguments.after_model is not None and not is_asked[1]:
        raise UsageError("--after-model requires that AFTER is a calibration or questions")
    needs_model = is_asked[0] or (is_asked[1] and arguments.after_model is None)
    if arguments.model is not None and not needs_model:
        raise UsageError("--model requires that BEFORE or AFTER is a calibration or questions")


def _questions(arguments: argparse.Namespace, sides: Sequence[_SetUp]) -> tuple[Question, ...]:
    """Return the questions of the command line, or else of a set-up, which must agree."""
    given_ones = arguments.questions is not None or arguments.question_parts is not None
    questions = read_questions(arguments) if given_ones else None
    for side in sides:
        if side.questions is None:
            continue
        if questions is None:
            questions = side.questions
        elif _options(side.questions) != _options(questions):
            raise InvalidArgumentError(
                f"{side.path} asks for other answers than the other questions: the options must "
                f"be the same, in the same order"
            )
    if questions is None:
        raise UsageError(
            "no questions: give --questions, --predicate, --ask or --score, so that the possible "
            "answers are known"
        )
    return questions


def _options(questions: Sequence[Question]) -> list[tuple[str, ...]]:
    return [option_names(question) for _, question in named_questions(questions)]


def _table_answers(
    sides: Sequence[_SetUp],
    questions: Sequence[Question],
    rows: LabelledRows,
    inputs: Sequence[Any],
) -> dict[str, Indices]:
    """Return the answers of each table to the labelled rows; all tables must have the same rows."""
    found = {
        side.path: (side.table, given_answers(side.table, questions))
        for side in sides
        if side.table is not None
    }
    for (path, (_, first)), (other, (_, second)) in itertools.pairwise(found.items()):
        if only := first.keys() ^ second.keys():
            number = min(only)
            has, lacks = (path, other) if number in first else (other, path)
            raise InvalidArgumentError(
                f"{has} has row {number}, but {lacks} has not: compare outputs for the same table"
            )
    for path, (table, answers) in found.items():
        for row, place in zip(rows.numbers, rows.places, strict=True):
            if row is not None and row not in answers:
                raise InvalidArgumentError(f"{place}: row {row} is not in {path}")
        _check_inputs(path, table, rows, inputs)
    return {
        path: read_examples(
            questions, [("", {} if row is None else answers[row]) for row in rows.numbers]
        ).targets
        for path, (_, answers) in found.items()
    }


def _check_inputs(path: str, table: InputTable, rows: LabelledRows, inputs: Sequence[Any]) -> None:
    """Raise InvalidArgumentError if a labelled row has another input in a table of answers."""
    if rows.column not in table.all_columns():
        return  # nothing to compare with

    expected = {
        number: (input_text(input), place)
        for number, place, input in zip(rows.numbers, rows.places, inputs, strict=True)
    }
    for row in table.rows(columns={"row", rows.column}):
        text, place = expected.get(int(row.fields["row"]), (None, ""))
        if text is not None and input_text(input_of(row, rows.column)) != text:
            raise InvalidArgumentError(
                f"{place}: {row.place} has another {rows.column!r} for row {row.fields['row']}: "
                f"{path} is about another table"
            )


def _asked(
    arguments: argparse.Namespace,
    name: str,
    side: _SetUp,
    questions: tuple[Question, ...],
    inputs: Sequence[Any],
) -> tuple[Indices, dict[str, Any]]:
    """Return the answers of a model to all inputs, and what they cost."""
    path = side.model or (arguments.after_model if name == "after" else None) or arguments.model
    settings = {"calibration": side.calibration}
    if side.calibration is None:
        asked = read_asking(arguments)
        settings |= {each: asked[each] for each in (*PROMPT_OPTIONS, "scoring")}
    progress = RowProgress()
    try:
        with open_model(with_model(arguments, path), arguments.n_slots) as model:
            progress.begin()
            return ask(
                model,
                inputs,
                questions if side.questions is None else side.questions,
                progress=progress.count,
                **settings,
            )
    finally:
        progress.erase()


def ask(
    model: Model, inputs: Sequence[Any], questions: Sequence[Question], **settings: Any
) -> tuple[Indices, dict[str, Any]]:
    """Return the most probable options, as :func:`.option_indices`, and the cost of all answers."""
    begin = time.perf_counter()
    decisions: Sequence[Decision[Any] | Exception] = model.decide_many(
        inputs, questions, return_exceptions=True, **settings
    )
    seconds = time.perf_counter() - begin
    usages = [each.usage for each in decisions if isinstance(each, Decision)]
    passes = [each.forward_passes for each in usages]
    cost = {
        "seconds": round(seconds, 3),
        "input_tokens": sum(each.input_tokens for each in usages),
        "cached_tokens": sum(each.cached_tokens for each in usages),
        "forward_passes": sum(passes) if min(passes, default=0) >= 0 else None,
    }
    return option_indices(questions, decisions), cost


def comparison_json(
    comparison: Sequence[PairedComparison], places: Sequence[str], inputs: Sequence[Any]
) -> dict[str, Any]:
    """Return a comparison as JSON data, with the places and inputs of the changed rows."""
    found = {}
    for each in comparison:
        changed = [
            {
                "place": places[row.row],
                **{name: getattr(row, name) for name in ("right", *SIDES)},
                "input": input_text(inputs[row.row]),
            }
            for row in each.changed
        ]
        found[each.name] = {**each.to_dict(), "changed": changed}
    return found


def comparison_text(
    comparison: Sequence[PairedComparison], shown: Mapping[str, Any], kind: str
) -> str:
    """Return a comparison as text. `shown` has it as JSON, and `kind` says what a row is, such as
    ``"random row"``."""
    parts = []
    for each in comparison:
        before, after = each.accuracy(0), each.accuracy(1)
        if before is None or after is None:
            parts.append(f"{each.name}: no {kind} has a right answer and both other answers")
            continue
        low, high = each.difference
        lines = [
            f"{each.name}, {counted(each.n, kind)}: accuracy {_accuracy(before)} before, "
            f"{_accuracy(after)} now, p = {each.p:.3g} (McNemar's exact test)",
            f"{VERDICTS[each.verdict]} {counted(each.n_gained, 'row')} gained, {each.n_lost} lost: "
            f"the accuracy changed by {100 * low:+.1f} to {100 * high:+.1f} points "
            f"({CONFIDENCE:.0%} interval).",
        ]
        if any(each.unanswered):
            lines.append(
                f"Rows without an answer: {each.unanswered[0]} before, {each.unanswered[1]} now."
            )
        text = "\n".join(wrap(printable(line), terminal_width()) for line in lines)
        if each.changed:
            text += "\n" + _changed_table(shown[each.name]["changed"])
        parts.append(text)
    return "\n\n".join(parts)


def _accuracy(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return f"{value:.3f} ({low:.2f} to {high:.2f})"


def _changed_table(changed: Sequence[Mapping[str, str]]) -> str:
    rows = [list(row.values()) for row in changed[:MAX_ROWS]]
    for row in rows:
        row[-1] = printable(" ".join(row[-1].split())[:MAX_INPUT])
    head = ["place", "right", "before", "now", "input"]
    more = len(changed) - len(rows)
    end = f"\nand {counted(more, 'more row')}" if more else ""
    return text_table([head, *rows], left=5, width=terminal_width()) + end


def _costs_text(costs: Mapping[str, Mapping[str, Any] | None], n: int) -> str:
    rows = [["", "seconds", "ms/row", "input tokens", "cached", "passes"]]
    for side, cost in costs.items():
        cells = ["-"] * 5
        if cost:
            passes = cost["forward_passes"]
            cells = [
                f"{cost['seconds']:.2f}",
                f"{1e3 * cost['seconds'] / n:.1f}",
                f"{cost['input_tokens']:,}",
                f"{cost['cached_tokens']:,}",
                "-" if passes is None else f"{passes:,}",
            ]
        rows.append([side, *cells])
    return "\n" + text_table(rows, left=1, width=terminal_width())
