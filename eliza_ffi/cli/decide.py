"""``eliza-ffi decide``: answer questions about one input, or about every row of a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..decisions.answers import Decision
from ..decisions.questions import Question, with_top
from ..errors import InvalidArgumentError
from ..evidence.auto_prompts import N_SAMPLE
from ..evidence.cascade import Cascade, as_cascade_calibration
from ..evidence.deciding import can_abstain, never_certified_text, plan_of
from ..evidence.reasoning import with_reasoning
from ..model import Model
from ..ray.cascade import WorkersSource
from ..ray.table import LOCAL, TableWorkers
from ..tables import AnswerCounts, Decider, InputTable, RowDecider, TableResult, run
from ..tables.cascade import CascadeDecider
from ..tables.columns import cell_text
from ..tables.decider import input_of, inputs_of
from ..terminal import counted, fact_table, printable, terminal_width, wrap
from .bars import decision_text
from .console import (
    UsageError,
    add_model_arguments,
    add_options,
    given,
    model_options,
    open_model,
    print_json,
    print_warning,
    read_given,
    read_messages,
    refuse,
)
from .files import check_output
from .progress import RowProgress, preparing
from .questions import (
    add_asking_arguments,
    add_cascade_arguments,
    add_deciding_arguments,
    add_example_arguments,
    add_question_arguments,
    add_table_arguments,
    below_of,
    checked_prior,
    read_asking,
    read_cascade,
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
    *("column", "delimiter", "limit", "output", "keep", "top"),
    *("overwrite", "retry_errors", "save_prior", "learn"),
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
    add_cascade_arguments(parser)
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
            "--top N": "print the N most probable labels: here of each choice, in a column",
            "--learn": "after the last row, learn from all rows without labels, and answer "
            "them again; if the checks fail, the model's own answers are kept",
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
    add_model_arguments(parser, decides=True)


def run_decide(arguments: argparse.Namespace) -> int:
    questions = read_questions(arguments)
    _check_together(arguments)
    if arguments.table is not None:
        return _run_table(arguments, questions)
    input = _read_input(arguments)
    settings = _settings(arguments, questions)
    if arguments.prior == "inputs":
        raise UsageError("--prior inputs requires a TABLE, whose rows are the inputs")
    if arguments.then:
        cascade, of_cascade = _cascade(arguments, settings)
        decision = cascade.decide(input, questions, **of_cascade)
        names = [each.name for each in cascade.sources]
        return _print_decision(arguments, questions, decision, names)
    with open_model(arguments, arguments.n_slots) as model:
        if arguments.dry_run:
            _print_prompts(model, input, questions, settings)
            return 0
        decision = model.decide(input, questions, **settings)
    calibration = settings["calibration"]
    has_prior = calibration is not None and calibration.is_prior
    return _print_decision(arguments, questions, decision, model.path, has_prior)


def _print_decision(
    arguments: argparse.Namespace,
    questions: Sequence[Question],
    decision: Decision[Any],
    model: str | list[str],
    has_prior: bool = False,
) -> int:
    if arguments.json:
        print_json({**decision.to_dict(), "model": model})
    else:
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
            "(--limit) and --save-prior FILE, and pass that file as --calibration"
        )
    if arguments.dry_run:
        input = _first_input(table, arguments.column)
        with open_model(arguments, arguments.n_slots) as model:
            _print_prompts(model, input, questions, settings)
        return 0
    if arguments.output is None:
        raise UsageError("a table needs an --output: a .jsonl, .csv, .tsv or .parquet file")
    check_output(arguments)
    check_output(arguments, "save_prior")
    output, keep = Path(arguments.output), arguments.keep
    column = arguments.column
    asked = (column, questions, settings, inputs_of(table, column, N_SAMPLE), arguments.learn)
    with (
        _decider(arguments, *asked) as decider,
        _resumable(output, arguments.limit) as progress,
    ):
        result = run(
            table,
            decider,
            output,
            keep=None if keep is None else [name for name in keep if name != "-"],
            **given(arguments, "top", "limit", "overwrite", "retry_errors"),
            progress=progress,
        )
    if result.counts.errors:
        # A single error can matter: an unclosed quote in a CSV file can swallow the rest of it.
        first = f"the first: {result.counts.first_error}"
        line = f"eliza-ffi: rows with errors: {result.counts.errors:,}, {first}"
        print(printable(line), file=sys.stderr)
    for reason in result.doubts:
        print_warning(reason)
    if arguments.json:
        fitted = settings["calibration"]
        is_calibrated = fitted is not None and not fitted.is_prior
        is_calibrated = is_calibrated or bool(arguments.then and arguments.calibration)
        print_json(_summary(result, output, is_calibrated))
    else:
        print(_summary_text(result, output, can_abstain(settings)))
        if result.learned:
            print(_learned_text(result))
    return 1 if result.counts.rows and result.counts.errors == result.counts.rows else 0


def _cascade(
    arguments: argparse.Namespace, settings: Mapping[str, Any]
) -> tuple[Cascade, dict[str, Any]]:
    """Return the cascade of ``--then``, and the settings of its decisions."""
    names = ("learn", "abstain", "allowed_probability", "dry_run")
    refuse(arguments, names, "cannot be combined with --then")
    if arguments.prior == "inputs":
        raise UsageError("--then cannot be combined with --prior inputs")
    names = ("min_probability", "abstain", "calibration", "allowed_probability")
    own = {name: value for name, value in settings.items() if name not in names}
    of_all = {"min_probability": arguments.min_probability}
    of_all["calibration"] = as_cascade_calibration(arguments.calibration)
    if arguments.ray is not None:
        return read_cascade(arguments, own, _on_workers), of_all
    return read_cascade(arguments, own), of_all


def _on_workers(
    arguments: argparse.Namespace, settings: Mapping[str, Any], name: str
) -> WorkersSource:
    """Return a source of a cascade whose model the workers of Ray open."""
    return WorkersSource(_workers(arguments), arguments.workers, settings, name)


def _workers(arguments: argparse.Namespace) -> Callable[..., TableWorkers]:
    if not arguments.workers:
        raise UsageError("--ray requires --workers, 1 or more")
    return partial(
        TableWorkers,
        arguments.ray,
        arguments.workers,
        model=arguments.model,
        model_options=model_options(arguments, arguments.n_slots),
        waiting=_report_waiting,
    )


@contextmanager
def _decider(arguments: argparse.Namespace, *asked: Any) -> Iterator[Decider]:
    """Open the model, here or on the workers of Ray. `asked` are arguments of RowDecider."""
    if arguments.then:
        column, questions, settings, sample, _ = asked
        cascade, of_cascade = _cascade(arguments, settings)
        yield CascadeDecider(cascade, column, questions, sample, **of_cascade)
        return
    if arguments.ray is not None:
        with _workers(arguments)(*asked) as workers:
            yield workers
        return
    with open_model(arguments, arguments.n_slots) as model:
        with preparing():
            decider = RowDecider(model, *asked)
        if decider.never_certified:
            print_warning(never_certified_text(decider.never_certified))
        try:
            yield decider
        finally:
            if arguments.save_prior is not None and decider.prior is not None:
                decider.prior.save(arguments.save_prior)


def _check_together(arguments: argparse.Namespace) -> None:
    """Reject combinations of options in which one option would have no effect."""
    below_of(arguments)
    if arguments.table is not None:
        why = f"cannot be combined with a table: the inputs are the rows of {arguments.table}"
        refuse(arguments, INPUT_ONLY, why)
        if arguments.save_prior is not None and arguments.prior != "inputs":
            raise UsageError("--save-prior requires --prior inputs")
        if arguments.learn:
            names = ("calibration", "think") if arguments.think else ("calibration",)
            refuse(arguments, names, "cannot be combined with --learn")
        if arguments.overwrite:
            why = "cannot be combined with --overwrite, which decides all rows"
            refuse(arguments, ("retry_errors",), why)
    else:
        refuse(arguments, TABLE_ONLY, "requires a TABLE")


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
    checked_prior(arguments.prior, has_inputs=True)
    names = ("prior", "allowed_probability", "min_probability", "abstain", "think")
    return {
        **read_asking(arguments, None if arguments.then else arguments.calibration),
        "examples": read_examples_file(arguments, questions),
        **given(arguments, *names),
    }


def _print_prompts(
    model: Model, input: Any, questions: Sequence[Question], settings: dict[str, Any]
) -> None:
    """Print the prompts; raise if the questions or settings do not fit the model."""
    own = {name: each for name, each in settings.items() if each != "inputs"}
    plan = plan_of(model.session, questions, own)
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


def _summary(result: TableResult, output: Path, is_calibrated: bool) -> dict[str, Any]:
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
        "stages": dict(counts.stages),
        "cpu_seconds": {stage: round(each, 3) for stage, each in result.cpu_seconds.items()},
        "certificate": result.certificate,
        "calibrated": is_calibrated,
        "learned": {
            name: {
                "accepted": each.is_accepted,
                "changed": each.n_changed,
                "shown": [vars(answer) for answer in each.changed],
                "reasons": list(map(str, each.training)),
            }
            for name, each in result.learned.items()
        },
        "warnings": result.doubts,
    }


def _learned_text(result: TableResult) -> str:
    """Say what the rows taught about each question, with some of the changed answers."""
    lines = []
    for name, learned in result.learned.items():
        reasons = "; ".join(map(str, learned.training)) or "this question cannot learn from rows"
        n = result.counts.rows - result.counts.errors
        lines.append(
            f"{name}: {counted(learned.n_changed, 'answer')} of {n:,} changed, not calibrated; "
            f"{reasons}"
        )
        lines += (
            f"  row {each.row:,}: {cell_text(each.before)} -> {cell_text(each.after)}"
            for each in learned.changed
        )
    return "\n".join(wrap(printable(line), terminal_width()) for line in lines)


def _summary_text(result: TableResult, output: Path, is_reviewed: bool) -> str:
    counts = result.counts
    before = counts.rows - result.new_rows
    facts = {
        "rows": f"{counts.rows:,}" + (f", {before:,} of them decided earlier" if before else ""),
        "errors": f"{counts.errors:,}",
        "for review": f"{counts.review:,}" if is_reviewed else "",
        "ended at": ", ".join(f"source {each} {n:,}" for each, n in sorted(counts.stages.items())),
        "CPU time": ", ".join(
            f"source {each} {seconds:,.1f} s"
            for each, seconds in sorted(result.cpu_seconds.items())
        ),
        "certificate": result.certificate or "",
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


def _report_waiting(n_ready: int, n_workers: int) -> None:
    print(
        f"eliza-ffi: workers with a loaded model: {n_ready} of {n_workers}; the others are "
        f"loading it or waiting for free CPUs or GPUs in the cluster",
        file=sys.stderr,
    )
