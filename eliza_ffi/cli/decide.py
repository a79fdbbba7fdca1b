"""``eliza-ffi decide``: answer questions about one input, or about every row of a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..decisions.auto_prompts import N_SAMPLE
from ..decisions.deciding import plan_of
from ..decisions.doubts import reasons_to_doubt
from ..decisions.fingerprint import fingerprint_of
from ..decisions.learning.calibration import Calibration
from ..decisions.learning.input_prior import N_INPUTS, given_calibration
from ..decisions.questions import Question, with_top
from ..decisions.reasoning import with_reasoning
from ..errors import InvalidArgumentError
from ..model import Model
from ..ray.table import LOCAL, TableWorkers
from ..tables import AnswerCounts, TableJob, TableResult, decide_rows
from ..tables.job import DecideAll, input_of, inputs_of
from ..tables.row_decider import RowDecider
from ..tables.rows import InputTable
from ..terminal import counted, fact_table, printable, terminal_width
from .bars import decision_text
from .console import (
    UsageError,
    add_model_arguments,
    add_options,
    given,
    model_options,
    open_model,
    print_json,
    read_given,
    read_messages,
)
from .files import check_output
from .progress import RowProgress
from .questions import (
    THINKING,
    add_asking_arguments,
    add_deciding_arguments,
    add_example_arguments,
    add_question_arguments,
    add_table_arguments,
    read_asking,
    read_examples_file,
    read_questions,
    read_table,
)

EPILOG = """\
The output has one row for each row of the table, in the same order. If the command is interrupted
or killed, run it again to resume: the rows decided so far are in FILE.job, next to the output. If a
row cannot be answered, its column "error" says why, and --retry-errors decides it again. Exit
codes: 0 done, 1 failed (or no row could be answered), 2 wrong command line, 130 interrupted.
"""

MAX_ANSWERS_COUNTED = 12
"""Maximum number of different answers to a question that the summary lists with their counts."""

TABLE_ONLY = (
    *("column", "delimiter", "limit", "output", "keep", "min_confidence", "top"),
    *("overwrite", "retry_errors", "save_prior"),
    *("ray", "workers"),
)
INPUT_ONLY = ("input", "input_file", "messages")


def add_decide_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help="a .csv, .tsv, .jsonl or .parquet file: decide every row",
    )
    source = parser.add_mutually_exclusive_group()
    add_options(
        source,
        {
            "--input TEXT": "the input (default: standard input)",
            "--input-file FILE": "read the input from FILE, without its last newline",
            "--messages FILE": "read the conversation from FILE: a JSON list of messages with "
            "role and content",
        },
    )
    add_question_arguments(parser)
    add_asking_arguments(parser)
    add_example_arguments(parser)
    add_options(
        parser,
        {
            "--save-prior FILE": "write the prior of --prior inputs to FILE, a calibration",
            "--calibration FILE": "apply this calibration, a file written by eliza-ffi calibrate",
            "--allowed-probability": "also report how much of the model's own probability fell on "
            "the options",
        },
    )
    add_deciding_arguments(parser)
    add_options(
        parser,
        {
            "--json": "print JSON: the decision, or the summary of a table",
            "--dry-run": "print the prompts of the first input without asking the model",
        },
    )
    add_table_arguments(parser)
    group = parser.add_argument_group("output of a table")
    add_options(
        group,
        {
            "--output FILE": "write to FILE: the decided rows, as .jsonl, .csv, .tsv or .parquet",
            "--keep NAME ...": "copy this column to the output; repeat for more; - = no column "
            "(default: all)",
            "--min-confidence C": "mark a row for review if an answer has a confidence below C: "
            "how far it is above chance, from 0 to 1, as in the column NAME_confidence",
            "--top N": "print the N most probable labels: here of each choice, in a column",
            "--overwrite": "if the output exists, replace it and decide all rows again",
            "--retry-errors": "decide again the rows that have an error in the existing output",
        },
    )
    group = parser.add_argument_group(
        "Ray", "requires the extra 'ray': pip install 'eliza-ffi[ray]'"
    )
    add_options(
        group,
        {
            "--ray ADDRESS": "decide the table on the Ray cluster at ADDRESS: HOST:PORT, auto, or "
            f"{LOCAL}",
            "--workers N": "with --ray: worker processes, each with its own model; each reserves "
            "--threads CPUs of the cluster (default: 1 CPU)",
        },
    )
    add_model_arguments(parser)


def run_decide(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    _check_together(arguments)
    if arguments.table is not None:
        return _run_table(arguments, questions)
    input = _read_input(arguments)
    settings = _settings(arguments, questions)
    if arguments.prior == "inputs":
        raise UsageError("--prior inputs requires a TABLE, whose rows are the inputs")
    with open_model(arguments, arguments.n_slots) as model:
        if arguments.dry_run:
            _print_prompts(model, input, questions, settings)
            return 0
        decision = model.decide(input, questions, **settings)
    if arguments.json:
        print_json({**decision.to_dict(), "model": model.path})
    else:
        has_prior = decision.calibrated and arguments.calibration is None
        width = max(terminal_width() or 80, 40)
        print(decision_text(questions, decision, width, has_prior=has_prior))
    return 0


def _run_table(arguments: argparse.Namespace, questions: tuple[Question, ...]) -> int:
    table = read_table(arguments)
    questions = with_top(questions, arguments.top)
    settings = _settings(arguments, questions)
    if arguments.workers is not None and arguments.ray is None:
        raise UsageError("--workers requires --ray")
    if arguments.ray is not None and arguments.prior == "inputs":
        raise UsageError(
            "--prior inputs is not supported with --ray: fit the prior with a part of the table "
            "(--limit) and --save-prior FILE, and pass that file as --prior"
        )
    if arguments.dry_run:
        input = _first_input(table, arguments.column)
        with open_model(arguments, arguments.n_slots) as model:
            _print_prompts(model, input, questions, settings)
        return 0
    if arguments.output is None:
        raise UsageError("a table needs an --output: a .jsonl, .csv, .tsv or .parquet file")
    check_output(arguments)
    output = Path(arguments.output)
    keep, calibration = arguments.keep, given_calibration(settings)

    def run(
        described: Mapping[str, Any],
        decide_all: DecideAll,
        with_prior: Callable[[str | None], str] | None = None,
        resume: Callable[[AnswerCounts], Any] | None = None,
    ) -> TableResult:
        job = TableJob(
            table,
            arguments.column,
            questions,
            output,
            keep=None if keep is None else [name for name in keep if name != "-"],
            settings={**described, "prior_of": arguments.prior},
            certified=calibration is not None and calibration.can_certify,
            reasoning=bool(arguments.think),
            **given(arguments, "allowed_probability", "top", "min_confidence"),
        )
        with _resumable(output, arguments.limit) as progress:
            return job.run_rows(
                decide_all,
                **given(arguments, "limit", "overwrite", "retry_errors"),
                progress=progress,
                with_prior=with_prior,
                resume=resume,
            )

    doubts: list[str] = []
    drift = None
    sample = inputs_of(table, arguments.column, N_SAMPLE)
    if arguments.ray is not None:
        with _ray_workers(arguments, questions, {**settings, "sample": sample}) as workers:
            result = run(json.loads(workers.described), workers.decide_rows)
    else:
        with open_model(arguments, arguments.n_slots) as model:
            decider = RowDecider(model, questions, settings, sample)

            def with_prior(stored: str | None) -> str:
                if stored is None:
                    decider.fit_prior(inputs_of(table, arguments.column, N_INPUTS))
                else:
                    decider.use_prior(Calibration.from_text(stored))
                assert decider.prior is not None
                if arguments.save_prior is not None:
                    decider.prior.save(arguments.save_prior)
                return decider.prior.to_text()

            result = run(
                {"model": fingerprint_of(model), **decider.described},
                lambda rows: decide_rows(
                    decider.decide,
                    rows,
                    arguments.column,
                    at_once=decider.at_once,
                    cancel=model.close,
                ),
                with_prior if arguments.prior == "inputs" else None,
                decider.resume,
            )
            doubts, drift = decider.reasons_to_doubt(), decider.drift()
    doubts = doubts or [
        reason
        for name, answers in result.counts.answers.items()
        for reason in reasons_to_doubt(name, answers, ())
    ]
    _report_errors(result)
    for reason in doubts:
        print(printable(f"eliza-ffi: warning: {reason}"), file=sys.stderr)
    if arguments.json:
        print_json({**_summary(result, output), "warnings": doubts, "drift": drift})
    else:
        print(_summary_text(result, output, arguments.min_confidence is not None))
    return 1 if result.counts.rows and result.counts.errors == result.counts.rows else 0


def _check_together(arguments: argparse.Namespace) -> None:
    """Reject combinations of options in which one option would have no effect."""
    if arguments.table is not None:
        for name in INPUT_ONLY:
            if getattr(arguments, name) is not None:
                raise UsageError(
                    f"{_option(name)} cannot be combined with a table: the inputs are the rows of "
                    f"{arguments.table}"
                )
        if arguments.save_prior is not None and arguments.prior != "inputs":
            raise UsageError("--save-prior requires --prior inputs")
        if arguments.overwrite and arguments.retry_errors:
            raise UsageError(
                "--retry-errors cannot be combined with --overwrite, which decides all rows"
            )
        return
    for name in TABLE_ONLY:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            raise UsageError(f"{_option(name)} requires a TABLE")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _read_input(arguments: argparse.Namespace) -> Any:
    if arguments.messages is not None:
        return read_messages(arguments.messages)
    missing = "no input: give --input, --input-file or a table, or pipe the input in"
    text = read_given(arguments.input, "--input", arguments.input_file, missing)
    if not text.strip():
        raise UsageError("the input is empty")
    return text


def _first_input(table: InputTable, column: str) -> Any:
    reason = "the table has no rows"
    for row in table.rows():
        try:
            return input_of(row, column)
        except InvalidArgumentError as error:
            reason = f"{row.place}: {error}"
    raise InvalidArgumentError(f"{table.path} has no usable input: {reason}")


def _settings(arguments: argparse.Namespace, questions: Sequence[Question]) -> dict[str, Any]:
    names = ("prior", "allowed_probability", "min_probability", "abstain")
    return {
        **read_asking(arguments, arguments.calibration),
        "examples": read_examples_file(arguments, questions),
        **given(arguments, *names, *THINKING),
    }


def _print_prompts(
    model: Model, input: Any, questions: Sequence[Question], settings: dict[str, Any]
) -> None:
    """Print the prompts; raise if the questions or settings do not fit the model."""
    own = {name: each for name, each in settings.items() if each != "inputs"}
    plan = plan_of(model, questions, own)
    if n := plan.settings.think:
        input = with_reasoning(input, f"(up to {counted(n, 'token')} of reasoning)")
    prompts = plan.texts(model.session, input)
    for number, prompt in enumerate(prompts, 1):
        print(f"---- prompt {number} of {len(prompts)}")
        print(printable(prompt))


@contextmanager
def _resumable(output: Path, limit: int | None) -> Iterator[RowProgress]:
    """Draw the progress of a job. After an interrupt, print how to resume it."""
    progress = RowProgress(limit)
    try:
        yield progress
    except KeyboardInterrupt:
        progress.erase()
        print(
            f"eliza-ffi: interrupted; the rows decided so far are kept in {output}.job; to resume, "
            f"run the same command without --overwrite",
            file=sys.stderr,
        )
        raise
    finally:
        progress.erase()


def _report_errors(result: TableResult) -> None:
    """Print the number of rows with errors on standard error, with the first error.

    A single error can matter: an unclosed quote in a CSV file can swallow the rest of the table.
    """
    counts = result.counts
    if counts.errors:
        line = f"rows with errors: {counts.errors:,}, the first: {counts.first_error}"
        print(printable(f"eliza-ffi: {line}"), file=sys.stderr)


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
        "unanswered": dict(counts.unanswered),
    }


def _summary_text(result: TableResult, output: Path, is_reviewed: bool) -> str:
    counts = result.counts
    before = counts.rows - result.new_rows
    facts = {
        "rows": f"{counts.rows:,}" + (f", {before:,} of them decided earlier" if before else ""),
        "errors": f"{counts.errors:,}",
        "for review": f"{counts.review:,}" if is_reviewed else "",
        "rows/s": f"{_rate(result):,.1f}" if result.new_rows else "",
        **{name: _answers_text(counts, name) for name in counts.answers},
        "output": str(output) + ("" if result.is_whole else ", up to the limit"),
    }
    return fact_table({name: [fact] for name, fact in facts.items() if fact}, terminal_width())


def _answers_text(counts: AnswerCounts, name: str) -> str:
    """Return how often each answer to a question was given, and how often none."""
    found = counts.answers[name].most_common(MAX_ANSWERS_COUNTED)
    if counts.unanswered[name]:
        found.append(("no answer", counts.unanswered[name]))
    return ", ".join(f"{answer} {n:,}" for answer, n in found)


def _rate(result: TableResult) -> float:
    return round(result.new_rows / result.seconds, 3) if result.seconds else 0.0


def _ray_workers(
    arguments: argparse.Namespace, questions: Sequence[Question], settings: Mapping[str, Any]
) -> TableWorkers:
    """Return the workers of the command line; a ``with`` block starts and ends them.

    `settings` are keyword arguments for :meth:`~eliza_ffi.Model.decide`.
    """
    if not arguments.workers:
        raise UsageError("--ray requires --workers, 1 or more")
    return TableWorkers(
        arguments.ray,
        arguments.workers,
        arguments.column,
        questions,
        settings,
        model=arguments.model,
        model_options=model_options(arguments, arguments.n_slots),
        waiting=_report_waiting,
    )


def _report_waiting(n_ready: int, n_workers: int) -> None:
    print(
        f"eliza-ffi: workers with a loaded model: {n_ready} of {n_workers}; the others are "
        f"loading it or waiting for free CPUs or GPUs in the cluster",
        file=sys.stderr,
    )
