"""Compare the time of a choice in eliza-ffi and in other libraries.

The methods are eliza-ffi, llama.cpp's grammar in both orders, llguidance and xgrammar. All use the
same models, prompts and labels. eliza-ffi and llama.cpp's grammar take turns in every round.

    $ make bench BENCH=quick    # three minutes

Requires the ``bench`` extra and a build with the test hooks; ``make`` installs and builds both.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .choosing.cells import ChoiceEffort, Others, measure_cell
from .choosing.report import markdown
from .parts.machine import machine_facts
from .parts.pages import bench_parser, publish, stored_or_measured
from .parts.workload import MODELS, action_names, prompts

CHOICES = (3, 30, 300)
"""Numbers of labels."""

N_PROMPTS = 3
EFFORT = ChoiceEffort(repeat=15, budget=1.5)


def run() -> dict[str, Any]:
    """Measure all models and return the results."""
    others, cells = Others.find(), []
    for subject, n_choices in itertools.product(MODELS, CHOICES):
        names = action_names(n_choices)
        measured = measure_cell(subject, names, prompts(names, N_PROMPTS), EFFORT, others)
        cells.append({"model": subject.name, **measured})
        print(f"{subject.name}, {n_choices} labels: {measured['seconds']:.0f} s", file=sys.stderr)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in others.peers],
        "plan": {"n_prompts": N_PROMPTS, "effort": asdict(EFFORT)},
        "cells": cells,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Compare the time of a choice in eliza-ffi and in other libraries.")
    options = parser.parse_args(arguments)
    results = stored_or_measured(options, "peers", run)
    return publish("peers", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
