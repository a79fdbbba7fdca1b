"""Compare ways to answer questions about an input.

One call of `Model.decide` with all questions is compared with:

- one call for each question, with the input in the slot or not;
- prefilling a prompt with the same number of tokens;
- llama-server's ``/v1/systemone`` with the same file, and its completions with a grammar and
  ``n_probs``;
- llguidance's masks over eliza-ffi's passes.

All methods take turns for each input, and every input is new to all of them. Writes JSON into
``bench/results``.

    $ python -m bench.decisions                                # everything, an hour
    $ python -m bench.decisions --only 'wide F16 32k' --merge  # measure one model again
    $ python -m bench.decisions --only 'small decision model' --questions 5 --merge
    $ python -m bench.decisions --render                       # measure nothing

Requires the ``bench`` extra. llama-server is the program in the variable ``LLAMA_SERVER``, or the
program that ``make peers`` builds.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .choosing.other_libraries import Peer
from .deciding.cells import DecidingEffort, DecisionCell, measure_cell
from .deciding.report import AXES, markdown
from .deciding.workload import CODES, PHRASES, SUBJECTS, WORDS
from .methods import METHODS
from .parts.machine import machine_facts
from .parts.pages import add_filter, bench_parser, publish, stored_or_measured
from .together.llama_server import find_llama_server

MIDDLE = {"input_tokens": 500, "questions": 20, "options": 10}
"""The middle cell. The cells of wide models differ from it in one parameter, with few exceptions,
and the performance targets refer to it."""

INPUTS, QUESTIONS, OPTIONS = (100, 500, 2000), (1, 5, 20), (2, 10, 255)


@dataclass(frozen=True)
class DecisionPlan:
    """The cells to measure, and how long to measure each."""

    cells: tuple[DecisionCell, ...]
    effort: DecidingEffort


def _grid(model: str, labels: str) -> list[DecisionCell]:
    sizes = itertools.product(INPUTS, QUESTIONS, OPTIONS)
    return [DecisionCell(model, *size, labels) for size in sizes]


def _around_middle(model: str, labels: str) -> list[DecisionCell]:
    """Return the middle cell, and cells that differ from it in one parameter.

    The largest number of options is measured with a single question. Twenty such questions have
    20,000 tokens, and a wide model decodes only a few hundred tokens per second.
    """
    sizes = [{**MIDDLE, "input_tokens": n} for n in INPUTS]
    sizes += [{**MIDDLE, "questions": n} for n in QUESTIONS if n != MIDDLE["questions"]]
    sizes += [{**MIDDLE, "options": 2}, {**MIDDLE, "questions": 1, "options": 255}]
    return [DecisionCell(model=model, labels=labels, **size) for size in sizes]


FULL = DecisionPlan(
    cells=(
        *_grid("small 32k", WORDS),
        DecisionCell("small 32k", 500, 20, 2, PHRASES),
        DecisionCell("small 32k", 500, 20, 10, PHRASES),
        DecisionCell("small 32k", 500, 1, 255, PHRASES),
        *_grid("small decision model", CODES),
        *_around_middle("wide Q4_K 32k", WORDS),
        DecisionCell(model="wide Q4_K 32k", labels=PHRASES, **MIDDLE),
        *_around_middle("wide Q4_K decision model", CODES),
        DecisionCell(model="wide F16 32k", labels=WORDS, **MIDDLE),
    ),
    effort=DecidingEffort(rounds=3, budget=1.0, wide_budget=6.0, base_budget=30.0),
)


def run(
    plan: DecisionPlan,
    cells: Sequence[DecisionCell],  # the cells to measure
    n_threads: int = 0,  # compute threads of every method; 0 = eliza-ffi's default number
    # A function with the signature of `measure_cell`.
    measure: Callable[..., dict[str, Any]] = measure_cell,
) -> dict[str, Any]:
    """Measure cells of a plan and return the results.

    If the run is interrupted with Ctrl-C, the results have the cells measured so far.
    """
    subjects = {subject.name: subject for subject in SUBJECTS}
    peers = {name: each.needs() for name, each in METHODS.items() if each.needs is not None}
    program, _ = find_llama_server()
    measured = []
    try:
        for cell in cells:
            subject = subjects[cell.model]
            effort = (plan.effort.rounds, budget_of(cell, plan.effort, is_wide=subject.is_wide))
            measured.append(measure(cell, subject, *effort, peers, program, n_threads))
    except KeyboardInterrupt:
        print(f"interrupted after {len(measured)} of {len(cells)} cells", file=sys.stderr)
    by_name: dict[str, Peer] = {peer.name: peer for peer in peers.values()}
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in by_name.values()],
        "plan": {**asdict(plan.effort), "middle": MIDDLE, "threads": n_threads},
        "cells": measured,
    }


def budget_of(cell: DecisionCell, effort: DecidingEffort, *, is_wide: bool) -> float:
    """Return the seconds after which a method gets no more rounds."""
    if not is_wide:
        return effort.budget
    in_middle = all(getattr(cell, axis) == MIDDLE[axis] for axis in AXES)
    return effort.base_budget if in_middle and cell.labels != PHRASES else effort.wide_budget


def main(arguments: Sequence[str] | None = None) -> int:
    names = [subject.name for subject in SUBJECTS]
    parser = bench_parser("Compare ways to answer questions about an input.", merge=True)
    add_filter(parser, "--only", "this model", choices=names)
    add_filter(parser, "--input", "inputs of this length", type=int, metavar="TOKENS")
    add_filter(parser, "--questions", "N questions", type=int, metavar="N")
    add_filter(parser, "--options", "questions with N options", type=int, metavar="N")
    threads = "compute threads of every method; 1 if other programs use the other cores"
    parser.add_argument("--threads", type=int, default=0, metavar="N", help=threads)
    options = parser.parse_args(arguments)
    wanted = [
        cell
        for cell in FULL.cells
        if cell.model in (options.only or names)
        and cell.input_tokens in (options.input or INPUTS)
        and cell.questions in (options.questions or QUESTIONS)
        and cell.options in (options.options or OPTIONS)
    ]
    if not wanted and options.render is None:
        parser.error("no cell of the plan matches --only, --input, --questions and --options")
    results = stored_or_measured(
        options,
        "decisions",
        lambda: run(FULL, wanted, options.threads),
        key=("model", *AXES, "labels"),
    )
    return publish("decisions", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
