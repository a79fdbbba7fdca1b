"""``eliza-ffi decide``: questions about one input, or about every row of a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..decisions.answers import expand
from ..decisions.asking import prompt_texts
from ..decisions.calibration import wording_hash
from ..decisions.deciding import settings_for
from ..decisions.fingerprint import fingerprint_of
from ..decisions.prompts import as_one_input
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from ..model import Model
from ..tables import TableJob, TableResult, decide_rows
from ..tables.files import content_hash
from ..tables.job import DecideAll, input_of
from ..tables.rows import InputTable, check_column
from ..terminal import fact_table, printable, terminal_width
from .bars import decision_text
from .console import UsageError, add_model_arguments, open_model, read_messages
from .files import STANDARD_INPUT, check_output, check_utf8, read_standard_input, read_text
from .on_ray import add_ray_arguments, ray_workers
from .progress import RowProgress
from .questions import (
    HowAsked,
    add_asking_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_questions,
    read_table,
)

__all__ = ["add_decide_arguments", "run_decide"]

EPILOG = """\
A table's output has a row for each of its rows, in order. Interrupted or killed, the same command
goes on where it was: FILE.job, beside the output, says what it is of. Rows that cannot be answered
say why in the column "error", and --retry-errors decides them anew. Exit codes: 0 done, 1 failed
(or no row could be answered), 2 wrong command line, 130 interrupted.
"""

MOST_ANSWERS = 12
"""Answers of a question that the summary counts."""

TABLE_ONLY = (
    *("column", "delimiter", "limit", "output", "keep", "min_confidence"),
    *("overwrite", "retry_errors"),
    *("ray", "workers"),
)
INPUT_ONLY = ("input", "input_file", "messages")


def add_decide_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = EPILOG
    parser.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help="a .csv, .tsv, .jsonl or .parquet file: decide about every row",
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--input", metavar="TEXT", help="the input; standard input without it")
    given.add_argument(
        "--input-file", metavar="FILE", help="read the input from FILE; its last newline is cut"
    )
    given.add_argument(
        "--messages", metavar="FILE", help="a conversation: JSON list of roles and contents"
    )
    add_question_arguments(parser)
    add_asking_arguments(parser)
    parser.add_argument("--calibration", metavar="FILE", help="what calibrate wrote")
    parser.add_argument(
        "--option-mass",
        action="store_true",
        help="tell the share of the model's own probability that fell on the options",
    )
    parser.add_argument(
        "--abstain-below",
        type=_share,
        default=0.0,
        metavar="P",
        help="no answer where the likeliest is less likely (0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: decision or summary")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the first input's prompts, and ask nothing"
    )
    add_table_arguments(parser)
    group = parser.add_argument_group("output of a table")
    group.add_argument(
        "--output",
        metavar="FILE",
        help="write to FILE: the rows, as .jsonl, .csv, .tsv or .parquet",
    )
    group.add_argument(
        "--keep",
        action="append",
        metavar="NAME",
        help="a column of the table that the output has, too; repeated; - = none (all)",
    )
    group.add_argument(
        "--min-confidence",
        type=_share,
        metavar="C",
        help="mark rows for review where an answer is less far above chance, 0 to 1",
    )
    group.add_argument(
        "--overwrite", action="store_true", help="begin anew where the output is there already"
    )
    group.add_argument(
        "--retry-errors",
        action="store_true",
        help="decide rows anew that have an error in the output that is there",
    )
    add_ray_arguments(parser)
    add_model_arguments(parser)


def run_decide(arguments: argparse.Namespace) -> int:
    """Decide about one input, or about a table."""
    questions = read_questions(arguments)
    _check_together(arguments)
    if arguments.table is not None:
        return _run_table(arguments, questions)
    given = _read_input(arguments)
    settings = _settings(arguments, read_asking(arguments))
    with open_model(arguments, arguments.n_slots) as model:
        if arguments.dry_run:
            _print_prompts(model, given, questions, settings)
            return 0
        decision = model.decide(given, questions, **settings)
    if arguments.json:
        print(json.dumps({**decision.to_dict(), "model": model.path}, ensure_ascii=False))
    else:
        print(decision_text(questions, decision, max(terminal_width() or 80, 40)))
    return 0


def _run_table(arguments: argparse.Namespace, questions: tuple[Question, ...]) -> int:
    table = read_table(arguments)
    check_column(table, arguments.column)
    asked = read_asking(arguments)
    settings = _settings(arguments, asked)
    if arguments.workers is not None and arguments.ray is None:
        raise UsageError("--workers goes with --ray")
    if arguments.dry_run:
        given = _first_input(table, arguments.column)
        with open_model(arguments, arguments.n_slots) as model:
            _print_prompts(model, given, questions, settings)
        return 0
    if arguments.output is None:
        raise UsageError("a table needs an --output: a .jsonl, .csv, .tsv or .parquet file")
    check_output(arguments)
    output = Path(arguments.output)

    def run(fingerprint: str, decide_all: DecideAll) -> TableResult:
        job = TableJob(
            table,
            arguments.column,
            questions,
            output,
            keep=None
            if arguments.keep is None
            else [name for name in arguments.keep if name != "-"],
            settings=_identity(fingerprint, arguments, asked),
            option_mass=arguments.option_mass,
            min_confidence=arguments.min_confidence,
        )
        with _resumable(output, arguments.limit) as progress:
            return job.run_rows(
                decide_all,
                limit=arguments.limit,
                overwrite=arguments.overwrite,
                retry_errors=arguments.retry_errors,
                progress=progress,
            )

    if arguments.ray is not None:
        with ray_workers(arguments, questions, settings) as workers:
            result = run(workers.fingerprint, workers.decide_rows)
    else:
        with open_model(arguments, arguments.n_slots) as model:
            # What is wrong with the questions or the calibration would be wrong in every row.
            model.decide("a test", questions, **settings)
            result = run(
                fingerprint_of(model),
                lambda rows: decide_rows(
                    lambda given: model.decide(as_one_input(given), questions, **settings),
                    rows,
                    arguments.column,
                    at_once=model.session.decisions_at_once(None),
                    cancel=model.close,
                ),
            )
    _tell_errors(result)
    if arguments.json:
        print(json.dumps(_summary(result, output), ensure_ascii=False))
    else:
        print(_summary_text(result, output, arguments.min_confidence is not None))
    return 1 if result.counts.rows and result.counts.errors == result.counts.rows else 0


def _check_together(arguments: argparse.Namespace) -> None:
    """Refuse options that would change nothing."""
    if arguments.table is not None:
        for name in INPUT_ONLY:
            if getattr(arguments, name) is not None:
                raise UsageError(
                    f"{_option(name)} is one input, and {arguments.table} a table of them"
                )
        if arguments.overwrite and arguments.retry_errors:
            raise UsageError("--overwrite decides all rows anew: give no --retry-errors")
        return
    for name in TABLE_ONLY:
        given = getattr(arguments, name)
        if given is not None and given is not False:
            raise UsageError(f"{_option(name)} goes with a table")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _read_input(arguments: argparse.Namespace) -> Any:
    if arguments.messages is not None:
        return read_messages(arguments.messages)
    if arguments.input is not None:
        text = str(arguments.input)
        check_utf8(text, "--input")
    elif arguments.input_file not in (None, STANDARD_INPUT):
        text = read_text(arguments.input_file).removesuffix("\n")
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no input: give --input, --input-file, a table, or pipe it in")
    else:
        text = read_standard_input().removesuffix("\n")
    if not text.strip():
        raise UsageError("the input is empty")
    return text


def _first_input(table: InputTable, column: str) -> Any:
    """Return the first row's input that can be asked about."""
    said = "it has no rows"
    for row in table.rows():
        try:
            return input_of(row, column)
        except InvalidArgumentError as error:
            said = f"{row.place}: {error}"
    raise InvalidArgumentError(f"{table.path} has no input: {said}")


def _settings(arguments: argparse.Namespace, asked: HowAsked) -> dict[str, Any]:
    """Return the arguments of :meth:`Model.decide`."""
    return {
        "labels": arguments.labels,
        "orders": arguments.orders,
        "scoring": arguments.scoring,
        "calibration": asked.calibration,
        "option_mass": arguments.option_mass,
        "abstain_below": arguments.abstain_below,
    }


def _identity(fingerprint: str, arguments: argparse.Namespace, asked: HowAsked) -> dict[str, Any]:
    """Return what the answers depend on besides the table and the questions."""
    path = arguments.calibration
    return {
        "model": fingerprint,
        "wording": wording_hash(None),
        "labels": asked.labels,
        "orders": asked.orders,
        "scoring": asked.scoring,
        "calibration": None if path is None else content_hash(Path(path)),
        "option_mass": arguments.option_mass,
        "abstain_below": arguments.abstain_below,
    }


def _print_prompts(
    model: Model, given: Any, questions: Sequence[Question], settings: dict[str, Any]
) -> None:
    """Print prompts, or refuse what could not be asked."""
    checked = settings_for(model.session, questions, prompt=None, stream={}, **settings)
    every = [each for question in questions for each in expand(question)]
    prompts = prompt_texts(model.session, given, every, checked.how, joint=checked.needs_joint)
    for number, prompt in enumerate(prompts, 1):
        print(f"---- prompt {number} of {len(prompts)}")
        print(printable(prompt))


@contextmanager
def _resumable(output: Path, limit: int | None) -> Iterator[RowProgress]:
    """Draw the progress of a job, and where it is interrupted say how to go on."""
    progress = RowProgress(limit)
    try:
        yield progress
    except KeyboardInterrupt:
        progress.erase()
        print(
            f"eliza-ffi: interrupted; what was decided is kept for {output}, and the same command "
            f"without --overwrite goes on",
            file=sys.stderr,
        )
        raise
    finally:
        progress.erase()


def _tell_errors(result: TableResult) -> None:
    """Say on standard error that rows have errors: one may stand for the rest of a table."""
    counts = result.counts
    if counts.errors:
        said = f"rows with errors: {counts.errors:,}, the first: {counts.first_error}"
        print(printable(f"eliza-ffi: {said}"), file=sys.stderr)


def _summary(result: TableResult, output: Path) -> dict[str, Any]:
    counts = result.counts
    return {
        "output": str(output),
        "rows": counts.rows,
        "new_rows": result.new_rows,
        "errors": counts.errors,
        "review": counts.review,
        "whole": result.is_whole,
        "seconds": round(result.seconds, 3),
        "rows_per_second": _rate(result),
        "answers": {name: dict(found.most_common()) for name, found in counts.answers.items()},
    }


def _summary_text(result: TableResult, output: Path, is_reviewed: bool) -> str:
    counts = result.counts
    before = counts.rows - result.new_rows
    facts = {
        "rows": f"{counts.rows:,}" + (f", {before:,} of them from before" if before else ""),
        "errors": f"{counts.errors:,}",
        "for review": f"{counts.review:,}" if is_reviewed else "",
        "rows/s": f"{_rate(result):,.1f}" if result.new_rows else "",
        **{
            name: ", ".join(f"{answer} {n:,}" for answer, n in found.most_common(MOST_ANSWERS))
            for name, found in counts.answers.items()
        },
        "output": str(output) + ("" if result.is_whole else ", up to the limit"),
    }
    return fact_table({name: [fact] for name, fact in facts.items() if fact}, terminal_width())


def _rate(result: TableResult) -> float:
    return round(result.new_rows / result.seconds, 3) if result.seconds else 0.0


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value
