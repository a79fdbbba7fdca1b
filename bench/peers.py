"""Compare the time of a choice in eliza-ffi and in other libraries.

The methods are eliza-ffi, llama.cpp's grammar in both orders, llguidance and xgrammar. All use the
same models, prompts and labels in one run. eliza-ffi and llama.cpp's grammar take turns in every
round, so a slow moment of the machine affects them all. Writes JSON (and, in a full run, a plot)
into ``bench/results``.

    $ make bench BENCH=quick                             # under 3 minutes
    $ python -m bench.peers                               # with 3,000 labels; 20 minutes
    $ python -m bench.peers --only 'random 32k' --choices 30 --merge   # measure one row again
    $ python -m bench.peers --render --docs docs/performance.md         # measure nothing

Requires the ``bench`` extra and a build with the test hooks; ``make`` installs and builds both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.learning.pictures import Picture

from .choosing.cells import (
    AUTO,
    GRAMMAR_FIRST,
    GRAMMAR_LAST,
    LLGUIDANCE,
    XGRAMMAR,
    ChoiceEffort,
    Others,
    measure_cell,
)
from .choosing.report import markdown
from .parts.charts import draw_if_possible, draw_lines
from .parts.machine import machine_facts
from .parts.pages import add_filter, bench_parser, publish, stored_or_measured
from .parts.workload import MODELS, action_names, prompts


@dataclass(frozen=True)
class ChoicePlan:
    """The cells to measure, and how long to measure each.

    Attributes
    ----------
    choices : tuple of int
        Numbers of labels.
    """

    choices: tuple[int, ...]
    n_prompts: int
    effort: ChoiceEffort


COLOURS = {
    AUTO: "#D55E00",
    GRAMMAR_LAST: "#0072B2",
    GRAMMAR_FIRST: "#56B4E9",
    LLGUIDANCE: "#009E73",
    XGRAMMAR: "#CC79A7",
}
QUICK = ChoicePlan(choices=(3, 30, 300), n_prompts=3, effort=ChoiceEffort(repeat=15, budget=1.5))
QUICK_MODELS = [subject.name for subject in MODELS if not subject.is_wide]
FULL = ChoicePlan(
    choices=(3, 30, 300, 3000), n_prompts=5, effort=ChoiceEffort(repeat=50, budget=5.0)
)


def run(
    plan: ChoicePlan, only: Sequence[str], choices: Sequence[int], others: Others
) -> dict[str, Any]:
    """Measure the cells of a plan and return the results.

    Parameters
    ----------
    only, choices
        Names of models and numbers of labels to measure; empty = all of the plan.
    """
    cells = []
    for subject in MODELS:
        for n_choices in choices or plan.choices:
            if only and subject.name not in only:
                continue
            names = action_names(n_choices)
            asked = prompts(names, plan.n_prompts)
            measured = measure_cell(subject, names, asked, plan.effort, others)
            cell = {"model": subject.name, **measured}
            cells.append(cell)
            print(f"{subject.name}, {n_choices} labels: {cell['seconds']:.0f} s", file=sys.stderr)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in others.peers],
        "plan": asdict(plan),
        "cells": cells,
    }


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw the time of a choice over the number of labels, one panel per model."""
    models = list(dict.fromkeys(cell["model"] for cell in results["cells"]))
    picture = Picture(1, len(models), (3.4 * len(models), 3.7), sharey=True)
    for axis, model in zip(picture.axes[0], models, strict=True):
        cells = [cell for cell in results["cells"] if cell["model"] == model]
        points = [(cell["choices"], cell["methods"]) for cell in cells]
        draw_lines(axis, points, COLOURS, _choice_ms, title=model, xlabel="labels")
    picture.axes[0][0].set_ylabel("milliseconds per choice")
    picture.save(file)


def _choice_ms(method: Mapping[str, float]) -> float:
    return method["choice_ms"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser(
        "Compare the time of a choice in eliza-ffi and in other libraries.", merge=True
    )
    parser.add_argument("--quick", action="store_true", help="under 3 minutes, without a plot")
    add_filter(parser, "--only", "this model", metavar="MODEL")
    add_filter(parser, "--choices", "sets of N labels", type=int, metavar="N")
    options = parser.parse_args(arguments)
    name = "quick" if options.quick else "full"
    plan, only = (QUICK, QUICK_MODELS) if options.quick else (FULL, [])
    results = stored_or_measured(
        options,
        name,
        lambda: run(plan, options.only or only, options.choices, Others.find()),
        key=("model", "choices"),
    )
    if not options.quick:
        draw_if_possible(plot, results, options.out / f"{name}.png")
    sections = {"peers": markdown(results)}
    return publish(name, results, sections["peers"], options, sections)


if __name__ == "__main__":
    sys.exit(main())
