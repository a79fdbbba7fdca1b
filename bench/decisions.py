"""Compare one call of `Model.decide` with all questions about an input with other ways.

The other ways are one call for each question, with the input in the slot or not, and llama-server's
``/v1/systemone`` with the same file. All ways take turns for each input, and every input is new to
all of them. Writes JSON into ``bench/results``.

    $ python -m bench.decisions                        # everything, half an hour
    $ python -m bench.decisions --only 'wide F16 32k'  # one model

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

from .parts import pages
from .parts.figures import attempt, in_turns, median
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
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
NO_PARKING = {"parking": "off"}


def ways_of(
    model: Model, questions: Mapping[str, Choice], options: Sequence[str], port: int | None
) -> dict[str, Callable[[str], Any]]:
    """Return the ways to answer all questions about an input."""

    def together(given: str) -> None:
        forget(model)
        model.decide(given, questions)

    def one_by_one(given: str, forgets: bool = False) -> None:
        forget(model)
        for name, question in questions.items():
            if forgets:
                forget(model)
            model.decide(given, {name: question})

    ways: dict[str, Callable[[str], Any]] = {
        OURS: together,
        ONE_BY_ONE: one_by_one,
        ONE_BY_ONE_ANEW: lambda given: one_by_one(given, forgets=True),
    }
    if port is not None:
        body = {"questions": systemone_of(questions, options)}
        ways[SYSTEMONE] = lambda given: asked(port, "/v1/systemone", {"state": given, **body})
    return ways


def forget(model: Model) -> None:
    """Remove the input from the model's only slot."""
    with closing(model.binding.open(model.session.ctx, StreamConfig())) as stream:
        model.binding.prefill(stream, [1])


def measure_cell(
    subject: DecisionSubject, sizes: tuple[int, int, int], program: Path | None
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
        model = opened.enter_context(Model(path, n_slots=1, n_ctx=n_ctx, options=NO_PARKING))
        port = None
        if program is not None and subject.is_decision_model:
            # The setting that the server uses for requests with a shared prefix.
            more = ("--kv-unified",) if n_questions > 1 else ()
            n_threads = int(model.describe()["threads"])
            starting = serving(program, path, n_questions, n_ctx, n_threads, (), more)
            server = attempt(problems, SYSTEMONE, opened.enter_context, starting)
            port = None if server is None else server.port
        ways = ways_of(model, questions, options, port)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        ways[OURS](input_of(model.tokenize, 8, -1))  # reads the file, tokenizes the questions
        for turn, names in enumerate(in_turns(ways, ROUNDS)):
            given = input_of(model.tokenize, n_tokens, turn)
            for name in names:
                if sum(seconds[name]) <= SECONDS[subject.is_wide]:
                    time.sleep(SETTLING_SECONDS)
                    begin = time.perf_counter()
                    attempt(problems, name, ways[name], given)
                    seconds[name].append(time.perf_counter() - begin)
    ms = {name: 1e3 * median(each) for name, each in seconds.items() if name not in problems}
    cell |= {"tokens": usage.input_tokens, "passes": usage.forward_passes, "problems": problems}
    return {**cell, "ways": ms}


def run(only: Sequence[str]) -> dict[str, Any]:
    """Measure models and return the results."""
    program, server = find_llama_server()
    cells = [
        measure_cell(subject, sizes, program)
        for subject in SUBJECTS
        if not only or subject.name in only
        for sizes in (WIDE if subject.is_wide else SMALL)
    ]
    return {"machine": machine_facts(), "peers": [asdict(server)], "cells": cells}


def markdown(results: dict[str, Any]) -> str:
    """Return the table, then notes."""
    cells = results["cells"]
    named = [(_name(cell), cell) for cell in cells]

    def row(cell: dict[str, Any]) -> list[str]:
        def show(ms: float) -> str:
            return f"{number(ms)} ({number(ms / cell['ways'][OURS])})"

        sizes = (f"{cell[name]:,}" for name in (*AXES, "tokens", "passes"))
        return [cell["model"], *sizes, *pages.by_method(cell["ways"], WAYS, show)]

    head = ["model", "input", "questions", "options", "tokens", "passes", *WAYS]
    return pages.page_of(
        f"{machine_line(results['machine'])} {pages.versions_of(results['peers'])}."
        + disturbance(named),
        f"Milliseconds per request: median, and in parentheses relative to {OURS} with all "
        "questions in one call. *Tokens*: the input once and all questions. *Passes*: the forward "
        f"passes of {OURS}",
        markdown_table(head, map(row, cells)),
        pages.notes_of(results, named, "Left out or failed:"),
    )


def _name(cell: dict[str, Any]) -> str:
    return (
        f"{cell['model']}, {cell['input_tokens']:,} tokens, {cell['questions']} questions of "
        f"{cell['options']} options"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    names = [subject.name for subject in SUBJECTS]
    parser = pages.bench_parser("Compare ways to answer questions about an input.")
    pages.add_filter(parser, "--only", "this model", choices=names)
    options = parser.parse_args(arguments)
    results = pages.stored_or_measured(options, "decisions", lambda: run(options.only))
    return pages.publish("decisions", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
