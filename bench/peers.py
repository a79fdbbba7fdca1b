"""Compare the time of a choice in eliza-ffi and in other libraries.

The methods are eliza-ffi with every strategy, llama.cpp's grammar in both orders, llguidance,
xgrammar and, if it is installed, llama-cpp-python. All use the same models, prompts and labels in
one run. eliza-ffi and llama.cpp's grammar take turns in every round, so a slow moment of the
machine affects them all. Writes JSON and Markdown (and, in a full run, a plot) into
``bench/results``.

    $ make bench-quick                                    # under 3 minutes
    $ python -m bench.peers                               # with 3,000 labels; 20 minutes
    $ python -m bench.peers --only 'random 32k' --choices 30 --merge   # measure one row again
    $ python -m bench.peers --render bench/results/full.json --docs README.md

Requires the ``bench`` extra and a build with the test hooks; ``make`` installs and builds both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .choosing.cells import Others, Workload, measure_cell
from .choosing.report import markdown, ratios
from .choosing.rounds import ChoiceEffort
from .parts.charts import plot_peers
from .parts.machine import machine_facts
from .parts.merging import merged
from .parts.pages import RESULTS, fill_sections
from .parts.workload import MODELS, action_names, prompts


@dataclass(frozen=True)
class ChoicePlan:
    """The cells to measure, and how long to measure each.

    Attributes
    ----------
    choices : tuple of int
        Numbers of labels.
    n_prompts : int
    effort : ChoiceEffort
    """

    choices: tuple[int, ...]
    n_prompts: int
    effort: ChoiceEffort


QUICK = ChoicePlan(choices=(3, 30, 300), n_prompts=3, effort=ChoiceEffort(repeat=15, budget=1.5))
QUICK_MODELS = [subject.name for subject in MODELS if not subject.is_wide]
FULL = ChoicePlan(
    choices=(3, 30, 300, 3000), n_prompts=5, effort=ChoiceEffort(repeat=50, budget=5.0)
)


def run(
    plan: ChoicePlan,
    only: Sequence[str],
    choices: Sequence[int],
    others: Others,
    measure: Callable[..., dict[str, Any]] = measure_cell,
) -> dict[str, Any]:
    """Measure the cells of a plan and return the results.

    Parameters
    ----------
    plan
    only, choices
        Names of models and numbers of labels to measure; empty = all of the plan.
    others
    measure
        A function with the signature of `measure_cell`.
    """
    cells = []
    for subject in MODELS:
        for n_choices in choices or plan.choices:
            if only and subject.name not in only:
                continue
            names = action_names(n_choices)
            workload = Workload(subject, names, prompts(names, plan.n_prompts))
            cell = {"model": subject.name, **measure(workload, plan.effort, others)}
            cells.append(cell)
            print(f"{subject.name}, {n_choices} labels: {cell['seconds']:.0f} s", file=sys.stderr)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in others.peers],
        "plan": asdict(plan),
        "cells": cells,
    }


def cell_key(cell: dict[str, Any]) -> tuple[str, int]:
    """Return what identifies a cell: its model and its number of labels."""
    return cell["model"], cell["choices"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Compare the time of a choice in eliza-ffi and in other libraries."
    )
    parser.add_argument("--quick", action="store_true", help="under 3 minutes, without a plot")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="MODEL",
        help="measure only this model; repeat for more models",
    )
    parser.add_argument(
        "--choices",
        action="append",
        default=[],
        type=int,
        metavar="N",
        help="measure only sets of N labels; repeat for more sizes",
    )
    parser.add_argument(
        "--merge", action="store_true", help="keep the stored results of all other cells"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="folder of the results (bench/results)",
    )
    parser.add_argument(
        "--render", type=Path, metavar="JSON", help="show these results; measure nothing"
    )
    parser.add_argument(
        "--docs",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="also write the tables between FILE's markers; repeat for more files",
    )
    options = parser.parse_args(arguments)
    if options.render:
        results = json.loads(options.render.read_text(encoding="utf-8"))
        target = options.render
    else:
        target = options.out / ("quick.json" if options.quick else "full.json")
        plan = QUICK if options.quick else FULL
        only = options.only or (QUICK_MODELS if options.quick else [])
        results = run(plan, only, options.choices, Others.find())
        if options.merge and target.is_file():
            old = json.loads(target.read_text(encoding="utf-8"))
            counts = sorted({cell["choices"] for cell in (*old["cells"], *results["cells"])})
            order = [(subject.name, n) for subject in MODELS for n in counts]
            results = merged(old, results, "cells", cell_key, order)
        options.out.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tables = markdown(results)
    target.with_suffix(".md").write_text(tables, encoding="utf-8")
    if not options.quick and target.stem != "quick":
        plot_peers(results, target.with_suffix(".png"))
    for page in options.docs:
        fill_sections(page, {"peers": tables, "ratios": ratios(results)})
    print(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
