"""Compare one call of `Model.decide` with all questions about an input with other ways.

The other ways are one call for each question, with the input in the slot or not, and llama-server's
``/v1/systemone`` with the same file. All ways take turns for each input, and every input is new to
all of them. Writes JSON into ``bench/results``.

    $ python -m bench.decisions                                # everything, half an hour
    $ python -m bench.decisions --only 'wide F16 32k' --merge  # measure one model again
    $ python -m bench.decisions --render                       # measure nothing

llama-server is the program in the variable ``LLAMA_SERVER``, or the program that ``make peers``
builds.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions import Choice
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model

from .parts.figures import attempt, in_turns, median, quartiles, ratios
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import (
    add_filter,
    bench_parser,
    by_method,
    notes_of,
    page_of,
    publish,
    spread,
    stored_or_measured,
    versions_of,
)
from .parts.questions import (
    SUBJECTS,
    DecisionSubject,
    input_of,
    option_texts,
    questions_of,
    systemone_of,
)
from .together.llama_server import asked, find_llama_server, serving

OURS = "eliza-ffi"
ONE_BY_ONE = "eliza-ffi one by one"
ONE_BY_ONE_ANEW = "eliza-ffi one by one, nothing shared"
SYSTEMONE = "llama-server /v1/systemone"
WAYS = (OURS, ONE_BY_ONE, ONE_BY_ONE_ANEW, SYSTEMONE)

AXES = ("input_tokens", "questions", "options")
SMALL = tuple(itertools.product((100, 500, 2000), (1, 5, 20), (2, 10, 255)))
WIDE = ((100, 20, 10), (500, 1, 10), (500, 5, 10), (500, 20, 10), (500, 20, 2), (2000, 20, 10))
"""Tokens of the input, questions, and options of each question, for small and for wide models."""

ROUNDS = 3
SECONDS = {False: 1.0, True: 10.0}
"""After this time, a way gets no more rounds in a small model, and in a wide one."""

SETTLING_SECONDS = 0.2
"""The pause before each way. The previous way's threads keep spinning for a moment."""

SPARE_TOKENS = 1024


def forget(model: Model) -> None:
    """Remove the input from the model's only slot."""
    with closing(model.binding.open(model.session.ctx, StreamConfig())) as stream:
        model.binding.prefill(stream, [1])


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ways_of(
    model: Model, questions: Mapping[str, Choice], options: Sequence[str], port: int | None
) -> dict[str, Callable[[str], float]]:
    """Return the ways to answer all questions about an input; each returns its seconds."""

    def together(given: str) -> float:
        forget(model)
        return timed(lambda: model.decide(given, questions))

    def one_by_one(given: str, forgets: bool = False) -> float:
        forget(model)
        seconds = 0.0
        for name, question in questions.items():
            if forgets:
                forget(model)
            one = {name: question}
            seconds += timed(lambda one=one: model.decide(given, one))  # type: ignore[misc]
        return seconds

    ways: dict[str, Callable[[str], float]] = {
        OURS: together,
        ONE_BY_ONE: one_by_one,
        ONE_BY_ONE_ANEW: lambda given: one_by_one(given, forgets=True),
    }
    if port is not None:
        body = {"questions": systemone_of(questions, options)}
        ways[SYSTEMONE] = lambda given: timed(
            lambda: asked(port, "/v1/systemone", {"state": given, **body})
        )
    return ways


def measure_cell(
    subject: DecisionSubject, sizes: tuple[int, int, int], program: Path | None, n_threads: int
) -> dict[str, Any]:
    """Measure a model with one length of the inputs and one number of questions and options."""
    cell: dict[str, Any] = {"model": subject.name, **dict(zip(AXES, sizes, strict=True))}
    problems: dict[str, str] = {}
    n_tokens, n_questions, n_options = sizes
    options = option_texts(n_options)
    questions = questions_of(n_questions, options)
    path = subject.path()
    with noting_other_programs(cell, _name(cell)), ExitStack() as opened:
        with Model(path, n_slots=1) as model:
            usage = model.decide(input_of(model.tokenize, n_tokens, 0), questions).usage
        n_ctx = usage.input_tokens + SPARE_TOKENS
        # With one slot, and without copies of parked prompts, the slot holds exactly the prompts of
        # the current round.
        model = opened.enter_context(
            Model(path, n_slots=1, n_ctx=n_ctx, n_threads=n_threads, options={"parking": "off"})
        )
        port = None
        if program is not None and subject.is_decision_model:
            threads = n_threads or int(model.describe()["threads"])
            # The setting that the server uses for requests with a shared prefix.
            more = ("--kv-unified",) if n_questions > 1 else ()
            starting = serving(program, path, n_questions, n_ctx, threads, (), more)
            server = attempt(problems, SYSTEMONE, opened.enter_context, starting)
            port = None if server is None else server.port
        ways = ways_of(model, questions, options, port)
        rounds: dict[str, list[float]] = {name: [] for name in ways}
        ways[OURS](input_of(model.tokenize, 8, -1))  # reads the file, tokenizes the questions
        for turn, names in enumerate(in_turns(ways, ROUNDS)):
            given = input_of(model.tokenize, n_tokens, turn)
            for name in names:
                if sum(rounds[name]) > SECONDS[subject.is_wide]:
                    continue
                time.sleep(SETTLING_SECONDS)
                seconds = attempt(problems, name, ways[name], given)
                if seconds is not None:
                    rounds[name].append(seconds)
    cell |= {"tokens": usage.input_tokens, "passes": usage.forward_passes, "problems": problems}
    cell["ways"] = {
        name: {
            "request_ms": median(listed) * 1e3,
            "decisions_per_second": n_questions / median(listed),
            "times_ours": quartiles(ratios(listed, rounds[OURS])),
        }
        for name, listed in rounds.items()
        if listed
    }
    return cell


def run(only: Sequence[str], n_threads: int = 0) -> dict[str, Any]:
    """Measure models and return the results.

    If the run is interrupted with Ctrl-C, the results have the cells measured so far.
    """
    program, server = find_llama_server()
    cells = []
    try:
        for subject in SUBJECTS:
            if not only or subject.name in only:
                for sizes in WIDE if subject.is_wide else SMALL:
                    cells.append(measure_cell(subject, sizes, program, n_threads))
    except KeyboardInterrupt:
        print(f"interrupted after {len(cells)} cells", file=sys.stderr)
    plan = {"rounds": ROUNDS, "threads": n_threads}
    facts = {"machine": machine_facts(), "peers": [asdict(server)], "plan": plan}
    return {**facts, "cells": cells}


def markdown(results: dict[str, Any]) -> str:
    """Return the table of the ratios and the table of the measured figures, then notes."""
    cells = results["cells"]
    ways = [name for name in WAYS if any(name in cell["ways"] for cell in cells)]
    named = [(_name(cell), cell) for cell in cells]

    def table(ways: Sequence[str], show: Callable[[Any], str]) -> str:
        head = ["model", "input", "questions", "options", "tokens", "passes"]
        rows = [
            [
                cell["model"],
                *(f"{cell[name]:,}" for name in (*AXES, "tokens", "passes")),
                *by_method(cell["ways"], ways, show),
            ]
            for cell in cells
        ]
        return markdown_table([*head, *ways], rows, left=1)

    versions = versions_of(results["peers"], "not available")
    return page_of(
        f"{machine_line(results['machine'])} {versions}." + disturbance(named),
        f"Time relative to {OURS} with all questions in one call: 2 means twice as long. Median "
        "over the inputs, and the quartiles in parentheses",
        table(ways[1:], lambda way: spread(way["times_ours"])),
        "Milliseconds per request: median. *Tokens*: the input once and all questions. *Passes*: "
        f"the forward passes of {OURS}",
        table(ways, lambda way: number(way["request_ms"])),
        notes_of(results, named, "Left out or failed:"),
    )


def _name(cell: dict[str, Any]) -> str:
    return (
        f"{cell['model']}, {cell['input_tokens']:,} tokens, {cell['questions']} questions of "
        f"{cell['options']} options"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    names = [subject.name for subject in SUBJECTS]
    parser = bench_parser("Compare ways to answer questions about an input.", merge=True)
    add_filter(parser, "--only", "this model", choices=names)
    threads = "compute threads of every way; 1 if other programs use the other cores"
    parser.add_argument("--threads", type=int, default=0, metavar="N", help=threads)
    options = parser.parse_args(arguments)
    results = stored_or_measured(
        options, "decisions", lambda: run(options.only, options.threads), key=("model", *AXES)
    )
    return publish("decisions", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
