"""Measure attention on the CPU: the same work with our kernel and without flash attention.

The work is choices with fresh and with reused prompts, and text of several streams. Both settings
of ``flash_attn`` take turns; the important figures are the ratios within a round.

    $ python -m bench.attention --docs docs/performance.md              # fifteen minutes
    $ python -m bench.attention --render --docs docs/performance.md     # measure nothing
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.model import Model
from eliza_ffi.session.options import CacheOptions

from .model.streams import CHOICES, RandomPrompts
from .model.together import OurStreams, write_together
from .parts.figures import median, quartiles, ratios
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs, quietest
from .parts.pages import bench_parser, page_of, publish, spread, stored_or_measured
from .parts.workload import Subject
from .streams import MODELS

OFF, ON = "off", "on"
SUBJECT = MODELS[0]

TOKENS = 48
"""The tokens that each stream generates."""

ROUNDS, ATTEMPTS = 3, 2


@dataclass(frozen=True)
class Task:
    """A choice (0 streams) or text of several streams, after prompts of reused and new tokens.

    Attributes
    ----------
    head_size : int
        Values of an attention head.
    type_k : str
        The type of the keys in the KV cache of a choice.
    """

    new: int
    reused: int = 0
    streams: int = 0
    head_size: int = 128
    type_k: str = "f16"

    @property
    def name(self) -> str:
        prompt = f"{self.reused:,} reused + {self.new:,} new" if self.reused else f"{self.new:,}"
        work = (
            f"text, {self.streams} stream{'s' * (self.streams > 1)}" if self.streams else "choice"
        )
        more = f", heads of {self.head_size}" if self.head_size != 128 else ""
        more += f", keys in {self.type_k}" if self.type_k != "f16" else ""
        return f"{work}, prompt of {prompt}{more}"

    @property
    def subject(self) -> Subject:
        """The model."""
        return replace(SUBJECT, n_heads=SUBJECT.n_embd // self.head_size)

    def milliseconds(self, model: Model, prompts: Sequence[Sequence[int]]) -> float:
        """Return the time of the choice, or the time of a token of each stream."""
        if self.streams:
            written = write_together(OurStreams(model, CHOICES), prompts, TOKENS)
            return 1e3 * self.streams / written.tokens_per_second
        begin = time.perf_counter()
        model.choose(prompts[0], CHOICES, cache=CacheOptions(type_k=self.type_k))
        return (time.perf_counter() - begin) * 1e3


TASKS = (
    *(Task(new) for new in (32, 250, 1000, 4096)),
    *(Task(30, reused) for reused in (400, 2000)),
    *(Task(32, streams=streams) for streams in (1, 2, 4, 8, 16)),
    *(Task(new, streams=1) for new in (400, 2000)),
    *(Task(400, streams=streams) for streams in (8, 16)),
    *(Task(new, head_size=64) for new in (250, 1000)),
    *(Task(32, streams=streams, head_size=64) for streams in (1, 8)),
    *(Task(new, type_k="q8_0") for new in (250, 1000)),
    Task(30, 2000, type_k="q8_0"),
)


def measure(task: Task, rounds: int = ROUNDS) -> dict[str, Any]:
    """Do a task with both settings in turns, and return the times and their ratio."""
    cell: dict[str, Any] = {"task": task.name}
    path, count = task.subject.path(), max(task.streams, 1)
    n_ctx = max(2048, count * (task.reused + task.new + TOKENS + 32))
    with noting_other_programs(cell), ExitStack() as open_ones:
        models = {
            setting: open_ones.enter_context(
                Model(path, n_slots=count, n_ctx=n_ctx, options={"flash_attn": setting})
            )
            for setting in (OFF, ON)
        }
        source = RandomPrompts(models[OFF], seed=1)
        prefix = source.draw(1, task.reused)[0] if task.reused else []
        ms: dict[str, list[float]] = {setting: [] for setting in models}
        for turn in range(rounds + 1):
            prompts = source.draw(count, task.new, prefix)
            for setting in (OFF, ON) if turn % 2 else (ON, OFF):
                ms[setting].append(task.milliseconds(models[setting], prompts))
    off, on = ms[OFF][1:], ms[ON][1:]  # the first round brought the prefix into the slots
    cell |= {OFF: median(off), ON: median(on), "on_over_off": quartiles(ratios(on, off))}
    print(cell, file=sys.stderr)
    return cell


def run() -> dict[str, Any]:
    """Measure all tasks and return the results."""
    cells = [quietest(partial(measure, task), ATTEMPTS) for task in TASKS]
    return {"machine": machine_facts(), "cells": cells}


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table."""
    named = [(each["task"], each) for each in results["cells"]]
    rows = []
    for cell in results["cells"]:
        ratio = spread(cell["on_over_off"], "{:.2f}".format)
        ms = (number(cell[setting]) for setting in (OFF, ON))
        rows.append([cell["task"], *ms, ratio])
    return page_of(
        machine_line(results["machine"]) + disturbance(named),
        f"Milliseconds of a choice, or of a token of each stream, with flash attention off and on: "
        f"medians of {ROUNDS} rounds. *On / off* is the ratio of the times in the same round: "
        "median (quartiles)",
        markdown_table(["task", OFF, ON, "on / off"], rows),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("Measure attention on the CPU.").parse_args(arguments)
    results = stored_or_measured(options, "attention", run)
    return publish("attention", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
