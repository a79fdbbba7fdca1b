"""Measure many prompts with one call, compared with a loop over them.

The same model answers the prompts in three ways: a loop that calls `choose` or `generate` for one
prompt at a time; `choose_many` and `generate_many`; and one task per prompt on an event loop
(`asyncio.gather` over `AsyncModel`). All take turns, so a slow moment of the machine affects them
all. The important figures are the ratios within a round.

    $ python -m bench.batches                          # a quarter of an hour
    $ python -m bench.batches --quick                  # embedded model, a minute
    $ python -m bench.batches --only embedded --merge  # measure one model again
    $ python -m bench.batches --render                 # measure nothing
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.model import Model

from .model.streams import (
    CHOICE_PROMPT_TOKENS,
    CHOICES,
    PROMPT_TOKENS,
    RandomPrompts,
)
from .parts.figures import in_turns, median, quartiles, ratios
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import (
    add_filter,
    bench_parser,
    page_of,
    publish,
    spread,
    stored_or_measured,
)
from .parts.workload import Subject, wide
from .together.cells import N_CTX, PREFIX_TOKENS, SETTLING_SECONDS

LOOP = "a loop"
MANY = "*_many"
GATHER = "gather"
"""The three ways: one call after the other, one call for all prompts, one task per prompt."""

OWN = "choices, own prompts"
SHARED = "choices, shared prefix"
TEXTS = "texts"
TASKS = (OWN, SHARED, TEXTS)
"""The tasks. All prompts are new; with a shared prefix, only their last tokens are new."""

MESSAGE_TOKENS = 12
"""The number of new tokens after the shared prefix."""

LENGTHS = {OWN: CHOICE_PROMPT_TOKENS, SHARED: MESSAGE_TOKENS, TEXTS: PROMPT_TOKENS}

Prompts = list[list[int]]
Way = Callable[[Prompts], list[Any]]


@dataclass(frozen=True)
class BatchEffort:
    """How long to measure.

    Attributes
    ----------
    prompts : int
        Prompts of a round.
    tokens : int
        Tokens of each generated text, if the model does not end it earlier.
    """

    prompts: int
    tokens: int
    rounds: int


@dataclass(frozen=True)
class BatchSubject:
    """A model, and how long to measure it."""

    model: Subject
    effort: BatchEffort


EMBEDDED = Subject("embedded", None)
WIDE = BatchEffort(prompts=16, tokens=16, rounds=5)
SUBJECTS = (
    BatchSubject(EMBEDDED, BatchEffort(prompts=64, tokens=16, rounds=11)),
    BatchSubject(wide("wide F16 32k", "llama-spm"), WIDE),
    BatchSubject(wide("wide Q4_K 128k", "llama-bpe", "q4_k"), WIDE),
)
QUICK = (BatchSubject(EMBEDDED, BatchEffort(prompts=32, tokens=8, rounds=5)),)


@contextmanager
def ways_of(model: Model, task: str, n_tokens: int) -> Iterator[dict[str, Way]]:
    """Yield the ways to do a task, by name.

    Each is a function from prompts to the chosen labels, or to the generated tokens.
    """
    face = AsyncModel.of(model)
    events = asyncio.new_event_loop()

    async def choose_all(prompts: Prompts) -> list[Any]:
        return await asyncio.gather(*(face.choose(prompt, CHOICES) for prompt in prompts))

    async def write_all(prompts: Prompts) -> list[Any]:
        return await asyncio.gather(*(face.generate(prompt, n_tokens) for prompt in prompts))

    def chosen(found: Sequence[Any]) -> list[Any]:
        return [choice.value for choice in found]

    def written(found: Sequence[Any]) -> list[Any]:
        return [text.tokens for text in found]

    try:
        if task == TEXTS:
            yield {
                LOOP: lambda prompts: written([model.generate(p, n_tokens) for p in prompts]),
                MANY: lambda prompts: written(model.generate_many(prompts, n_tokens)),
                GATHER: lambda prompts: written(events.run_until_complete(write_all(prompts))),
            }
        else:
            yield {
                LOOP: lambda prompts: chosen([model.choose(p, CHOICES) for p in prompts]),
                MANY: lambda prompts: chosen(model.choose_many(prompts, CHOICES)),
                GATHER: lambda prompts: chosen(events.run_until_complete(choose_all(prompts))),
            }
    finally:
        events.close()


def measure_task(model: Model, task: str, effort: BatchEffort, settling: float) -> dict[str, Any]:
    """Run all ways in turns and return the figures of each.

    Returns
    -------
    dict
        For each way by name: ``per_second``, the answers per second, a median over the rounds; and
        ``times_the_loop``, its rate divided by the loop's in the same round, as first quartile,
        median and third quartile.
    """
    source = RandomPrompts(model, seed=1)
    prefix = source.draw(1, PREFIX_TOKENS)[0] if task == SHARED else []

    def drawn() -> Prompts:
        return source.draw(effort.prompts, LENGTHS[task], prefix)

    with ways_of(model, task, effort.tokens) as ways:
        for way in ways.values():
            way(drawn())  # warms up, and brings the prefix into the slots
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for name in itertools.chain.from_iterable(in_turns(ways, effort.rounds)):
            prompts = drawn()
            time.sleep(settling)
            begin = time.perf_counter()
            ways[name](prompts)
            seconds[name].append(time.perf_counter() - begin)
    return {
        name: {
            "per_second": effort.prompts / median(taken),
            "times_the_loop": [*quartiles(ratios(seconds[LOOP], taken))],
        }
        for name, taken in seconds.items()
    }


def measure(subject: BatchSubject, settling: float = SETTLING_SECONDS) -> list[dict[str, Any]]:
    """Measure all tasks of a model and return one cell for each."""
    cells = []
    with Model(subject.model.path(), n_ctx=N_CTX) as model:
        for task in TASKS:
            cell: dict[str, Any] = {
                "model": subject.model.name,
                "task": task,
                **asdict(subject.effort),
            }
            with noting_other_programs(cell, f"{subject.model.name}, {task}"):
                cell["ways"] = measure_task(model, task, subject.effort, settling)
            cells.append(cell)
    return cells


def run(subjects: Sequence[BatchSubject]) -> dict[str, Any]:
    """Measure some models and return the results."""
    return {
        "machine": machine_facts(),
        "cells": [cell for subject in subjects for cell in measure(subject)],
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table."""
    cells = results["cells"]
    named = [(f"{cell['model']}, {cell['task']}", cell) for cell in cells]
    return page_of(
        machine_line(results["machine"]) + disturbance(named),
        "Answers per second, and their ratio to the loop's in the same round: median (first to "
        "third quartile)",
        markdown_table(
            ["model, task", "prompts", LOOP, MANY, "/ loop", GATHER, "/ loop"],
            (
                [
                    name,
                    str(cell["prompts"]),
                    number(cell["ways"][LOOP]["per_second"]),
                    *_shown(cell["ways"][MANY]),
                    *_shown(cell["ways"][GATHER]),
                ]
                for name, cell in named
            ),
        ),
    )


def _shown(way: Mapping[str, Any]) -> list[str]:
    return [number(way["per_second"]), spread(way["times_the_loop"], "{:.2f}".format, " to ")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser(
        "Measure many prompts with one call, compared with a loop over them.", merge=True
    )
    parser.add_argument("--quick", action="store_true", help="the embedded model, in a minute")
    names = [subject.model.name for subject in SUBJECTS]
    add_filter(parser, "--only", "this model", choices=names)
    options = parser.parse_args(arguments)
    name = "batches-quick" if options.quick else "batches"
    subjects = QUICK if options.quick else SUBJECTS
    results = stored_or_measured(
        options,
        name,
        lambda: run([each for each in subjects if each.model.name in (options.only or names)]),
        key=("model", "task"),
    )
    return publish(name, results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
