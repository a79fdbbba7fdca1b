"""Measure many streams at once, compared with a batch loop and with llama-server.

Three things are measured:

- Text: each stream of one `Model` generates on its own thread. The comparison is with a plain
  llama.cpp loop that decodes one sequence per stream in one batch (``bench/batch_loop``), and with
  llama-server and one HTTP client per stream. Both run with their own default settings, and once
  more with eliza-ffi's settings.
- Choices among five labels by the same threads, compared with one thread, and with llama-server and
  a grammar.
- Choices of one thread while all other streams generate text.

With ``--busy``, only text is measured, and the others run only with their default settings. With
long prompts, only text is measured. With ``--text --merge``, only text is measured, and the stored
figures of choices are kept. All methods take turns, so a slow moment of the machine affects them
all. A cell that other programs disturbed is measured again. Writes JSON, Markdown and a picture
into ``bench/results``.

    $ make bench-streams                                            # everything, two hours
    $ python -m bench.streams --quick                               # one model, a few minutes
    $ python -m bench.streams --busy --only 'F16 32k'               # with another busy process
    $ python -m bench.streams --only 'F16 32k' --streams 8 --merge  # measure one cell again
    $ python -m bench.streams --render                              # measure nothing

Requires a build with the tests, which ``make`` creates. llama-server is the program in the
variable ``LLAMA_SERVER``, or the program that ``make peers`` builds. Without it, the report lists
llama-server as not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from .model.streams import PROMPT_TOKENS
from .parts.charts import draw_if_possible
from .parts.machine import machine_facts, quietest
from .parts.pages import add_filter, bench_parser, publish, stored_or_measured
from .parts.workload import wide
from .together.batch_loop import BatchLoop
from .together.cells import MOST_STREAMS, StreamEffort, measure_cell
from .together.llama_server import find_llama_server
from .together.report import markdown, plot

MODELS = (
    wide("F16 32k", "llama-spm"),
    wide("F16 128k", "llama-bpe"),
    wide("Q4_K 32k", "llama-spm", "q4_k"),
    wide("Q4_K 128k", "llama-bpe", "q4_k"),
    wide("F16 32k after 400 tokens", "llama-spm"),
)
LONG_PROMPTS = {"F16 32k after 400 tokens": 400}
"""Tokens of the prompts before generated text, for models that have longer ones than usual."""


@dataclass(frozen=True)
class StreamPlan:
    """The cells to measure, and how long to measure each.

    Attributes
    ----------
    attempts : int
        How often a cell is measured if other programs disturb it.
    """

    models: tuple[str, ...]
    streams: tuple[int, ...]
    effort: StreamEffort
    attempts: int


FULL = StreamPlan(
    models=tuple(model.name for model in MODELS),
    streams=(1, 2, 4, 8, 16),
    effort=StreamEffort(tokens=48, rounds=7, choice_rounds=5, least_choices=8, choices_beside=6),
    attempts=3,
)
QUICK = StreamPlan(
    models=(MODELS[0].name,),
    streams=(1, 8),
    effort=StreamEffort(tokens=24, rounds=2, choice_rounds=2, least_choices=6, choices_beside=4),
    attempts=1,
)


def run(
    plan: StreamPlan,
    only: Sequence[str] = (),
    streams: Sequence[int] = (),
    busy: bool = False,
    text_only: bool = False,
    measure: Callable[..., dict[str, Any]] = measure_cell,
) -> dict[str, Any]:
    """Measure the cells of a plan and return the results.

    Parameters
    ----------
    only, streams
        Names of models and numbers of streams to measure; empty = all of the plan.
    busy
        Whether one other busy process runs all the time.
    text_only
        Whether to measure only text.
    measure
        A function with the signature of `measure_cell`.
    """
    loop = BatchLoop.find()
    program, peer = find_llama_server()
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer)],
        "plan": asdict(plan.effort),
        "busy": busy,
        "cells": [
            quietest(
                partial(
                    measure,
                    *(model, n, plan.effort, loop, program, busy),
                    LONG_PROMPTS.get(model.name, PROMPT_TOKENS),
                    text_only,
                ),
                plan.attempts,
            )
            for model in MODELS
            if model.name in (only or plan.models)
            for n in (streams or plan.streams)
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    names = [model.name for model in MODELS]
    parser = bench_parser("Measure many streams at once.", merge=True)
    parser.add_argument("--quick", action="store_true", help="one model, a few minutes")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="measure text while another process is busy; the results have their own files",
    )
    parser.add_argument(
        "--text", action="store_true", help="measure only text; with --merge, keep stored choices"
    )
    add_filter(parser, "--only", "this model", choices=names)
    add_filter(parser, "--streams", "N streams", type=int, metavar="N")
    options = parser.parse_args(arguments)
    if not all(1 <= n <= MOST_STREAMS for n in options.streams):
        parser.error(f"--streams: expected 1 to {MOST_STREAMS}, got {options.streams}")
    name = f"streams{'-quick' * options.quick}{'-busy' * options.busy}"
    plan = QUICK if options.quick else FULL
    results = stored_or_measured(
        options,
        name,
        lambda: run(plan, options.only, options.streams, options.busy, options.text),
        key=("model", "streams"),
    )
    results["cells"].sort(key=lambda cell: (names.index(cell["model"]), cell["streams"]))
    draw_if_possible(plot, results, options.out / f"{name}.png")
    return publish(name, results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
