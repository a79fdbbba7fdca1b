"""Measure the processor time of a choice with its prompt, for models of several sizes.

Every program uses one compute thread. Then the processor time is close to the time on an idle
machine, even if other programs run. The prompts are random tokens, which are in no cache. eliza-ffi
also chooses a second time after each prompt, which is then in its cache.

    $ python -m bench.sizes    # five minutes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.model import Model

from .parts import pages
from .parts.figures import attempt, median
from .parts.machine import machine_facts, machine_line, noting_other_programs
from .parts.workload import EMBEDDED, GEMMA, LARGE, SMOLLM2, Subject
from .together.llama_server import find_llama_server, serving
from .together.streams import CHOICES, RandomPrompts

MODELS = (EMBEDDED, SMOLLM2, GEMMA, LARGE)
PROMPT_TOKENS = 64
MAX_CHOICES, MIN_CHOICES = 40, 8
SECONDS = 40.0
"""After this time, a model makes no more choices than `MIN_CHOICES`."""

N_CTX = 512

NEW, CACHED, SERVER = "eliza-ffi", "eliza-ffi, cached prompt", "llama-server"
WAYS = (NEW, CACHED, SERVER)


def measure_cell(subject: Subject, program: Path | None) -> dict[str, Any]:
    """Measure a model, and llama-server if there is a program."""
    cell: dict[str, Any] = {"model": subject.name, "problems": {}}
    with noting_other_programs(cell, subject.name), ExitStack() as opened:
        path = subject.path()
        model = opened.enter_context(Model(path, n_slots=1, n_ctx=N_CTX, n_threads=1))
        clocks: dict[str, Callable[[], float]] = dict.fromkeys((NEW, CACHED), time.process_time)
        choose: dict[str, Callable[[Any], Any]] = dict.fromkeys(
            clocks, lambda prompt: model.choose(prompt, CHOICES)
        )
        if program is not None:
            starting = serving(program, path, 1, N_CTX, 1, CHOICES)
            server = attempt(cell["problems"], SERVER, opened.enter_context, starting)
            if server is not None:
                clocks[SERVER], choose[SERVER] = server.processor_seconds, server.choose
        begin, drawn = time.perf_counter(), RandomPrompts(model, seed=1)
        ms: dict[str, list[float]] = {name: [] for name in choose}
        for i, prompt in enumerate(drawn.draw(MAX_CHOICES + 1, PROMPT_TOKENS)):
            if i > MIN_CHOICES and time.perf_counter() - begin > SECONDS:
                break
            for name, clock in clocks.items():
                before = clock()
                choose[name](prompt)
                if i > 0:  # the first choice is the warm-up
                    ms[name].append(1e3 * (clock() - before))
    cell["ways"] = {name: {"ms": median(each), "choices": len(each)} for name, each in ms.items()}
    return cell


def run() -> dict[str, Any]:
    """Measure all models and return the results."""
    program, peer = find_llama_server()
    cells = [measure_cell(subject, program) for subject in MODELS]
    return {"machine": machine_facts(), "peers": [asdict(peer)], "cells": cells}


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table."""
    named = [(cell["model"], cell) for cell in results["cells"]]
    rows = [
        [name, *pages.by_method(cell["ways"], WAYS, lambda way: number(way["ms"]))]
        for name, cell in named
    ]
    return pages.page_of(
        f"{machine_line(results['machine'])} {pages.versions_of(results['peers'])}.",
        f"Milliseconds of processor time of a choice among {len(CHOICES)} labels, with a prompt "
        f"of {PROMPT_TOKENS} tokens: median",
        markdown_table(["model", *WAYS], rows),
        pages.notes_of(results, named, "Failed:"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.bench_parser("Measure the processor time of a choice with its prompt.")
    options = parser.parse_args(arguments)
    results = pages.stored_or_measured(options, "sizes", run)
    return pages.publish("sizes", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
