"""Measure what many streams cost together, here and elsewhere, in one run on one machine.

Threads that each write with a stream of one `Model`, beside a plain llama.cpp loop that decodes as
many sequences in one batch (``bench/batch_loop``) and llama-server with as many clients over HTTP;
the same threads that choose among five answers, beside one thread alone and llama-server under a
grammar; and a choice while all other streams write. All in turns, so that what slows the machine
slows them all. Writes JSON, Markdown and a picture into ``bench/results``.

    $ make bench-streams                                  # all of it, an hour
    $ python -m bench.streams --quick             # one model, under 3 minutes
    $ python -m bench.streams --only 'F16 32k' --streams 8 --merge    # one cell anew
    $ python -m bench.streams --render --docs docs/performance.md     # measure nothing

Needs a build with the tests, which ``make`` takes care of; llama-server comes from ``make peers``
or the variable ``LLAMA_SERVER`` and is named as missing where there is none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .parts.machine import machine_facts
from .parts.merging import merged
from .parts.pages import add_output_arguments, publish
from .together.batch_loop import BatchLoop
from .together.cells import MOST_STREAMS, StreamEffort, StreamModel, measure_cell
from .together.llama_server import find_llama_server
from .together.report import markdown, plot

MODELS = (
    StreamModel("F16 32k", "llama-spm", "f16"),
    StreamModel("F16 128k", "llama-bpe", "f16"),
    StreamModel("Q4_K 32k", "llama-spm", "q4_k"),
    StreamModel("Q4_K 128k", "llama-bpe", "q4_k"),
)


@dataclass(frozen=True)
class StreamPlan:
    """Which cells there are and how much each is measured.

    Attributes
    ----------
    models : tuple of str
    streams : tuple of int
    effort : StreamEffort
    """

    models: tuple[str, ...]
    streams: tuple[int, ...]
    effort: StreamEffort


FULL = StreamPlan(
    models=tuple(model.name for model in MODELS),
    streams=(1, 2, 4, 8, 16),
    effort=StreamEffort(tokens=48, rounds=4, choice_rounds=3, least_choices=8, choices_beside=6),
)
QUICK = StreamPlan(
    models=(MODELS[0].name,),
    streams=(1, 8),
    effort=StreamEffort(tokens=24, rounds=2, choice_rounds=2, least_choices=6, choices_beside=4),
)


def run(
    plan: StreamPlan,
    only: Sequence[str] = (),
    streams: Sequence[int] = (),
    measure: Callable[..., dict[str, Any]] = measure_cell,
) -> dict[str, Any]:
    """Measure the plan's cells and return the results.

    Parameters
    ----------
    plan
    only, streams
        The models' names and the numbers of streams to measure; empty = all of the plan.
    measure
        As `measure_cell`.
    """
    loop = BatchLoop.find()
    program, peer = find_llama_server()
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer)],
        "plan": asdict(plan.effort),
        "cells": [
            measure(model, n, plan.effort, loop, program)
            for model in MODELS
            if model.name in (only or plan.models)
            for n in (streams or plan.streams)
        ],
    }


def cell_key(cell: dict[str, Any]) -> tuple[str, int]:
    """Return what a cell is told by."""
    return cell["model"], cell["streams"]


def main(arguments: Sequence[str] | None = None) -> int:
    names = [model.name for model in MODELS]
    parser = argparse.ArgumentParser(description="Measure what many streams cost together.")
    parser.add_argument("--quick", action="store_true", help="one model, under 3 minutes")
    parser.add_argument("--only", action="append", default=[], choices=names, help="repeated")
    parser.add_argument("--streams", action="append", default=[], type=int, metavar="N")
    parser.add_argument("--merge", action="store_true", help="keep the other cells of the file")
    parser.add_argument("--render", action="store_true", help="measure nothing, show the file")
    add_output_arguments(parser)
    options = parser.parse_args(arguments)
    if not all(1 <= n <= MOST_STREAMS for n in options.streams):
        parser.error(f"--streams must be 1 to {MOST_STREAMS}")
    name = "streams-quick" if options.quick else "streams"
    file = options.out / f"{name}.json"
    if options.render:
        results = json.loads(file.read_text(encoding="utf-8"))
    else:
        results = run(QUICK if options.quick else FULL, options.only, options.streams)
        if options.merge and file.is_file():
            old = json.loads(file.read_text(encoding="utf-8"))
            counts = sorted({cell["streams"] for cell in (*old["cells"], *results["cells"])})
            order = [(model, n) for model in names for n in counts]
            results = merged(old, results, "cells", cell_key, order)
    publish(name, results, markdown(results), options.out, options.docs)
    plot(results, options.out / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
