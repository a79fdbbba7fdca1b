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

from page_tables import markdown_table, number

from .choosing.cells import (
    AUTO,
    GRAMMAR_LAST,
    LLGUIDANCE,
    XGRAMMAR,
    ChoiceEffort,
    Others,
    measure_cell,
)
from .parts import pages
from .parts.machine import machine_facts, machine_line
from .parts.workload import EMBEDDED, MODELS, action_names, prompts

CHOICES = (3, 30, 300)
"""Numbers of labels."""

N_PROMPTS = 3
THEIRS = (GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR)
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


def markdown(results: dict[str, Any]) -> str:
    """Return the table of the time of a choice."""
    cells = results["cells"]
    named = [(f"{cell['model']} with {cell['choices']} labels", cell) for cell in cells]
    rows = [
        [
            *(cell["model"], f"{cell['choices']:,}", f"{cell['n_vocab']:,}"),
            *(number(cell["pass_ms"]), *_times(cell)),
        ]
        for cell in cells
        if cell["model"] != EMBEDDED.name
    ]
    return pages.page_of(
        f"{machine_line(results['machine'])} {pages.versions_of(results['peers'])}.",
        "Milliseconds of processor time of a choice after a cached prompt: median, and how many "
        "times as long as eliza-ffi. *Pass*: one forward pass",
        markdown_table(["model", "labels", "vocabulary", "pass", "eliza-ffi", *THEIRS], rows),
        pages.notes_of(results, named, "Failed:"),
    )


def _times(cell: dict[str, Any]) -> list[str]:
    ours = cell["methods"][AUTO]["choice_ms"]

    def show(figures: dict[str, Any]) -> str:
        return f"{number(figures['choice_ms'])} ({number(figures['choice_ms'] / ours)})"

    return [number(ours), *pages.by_method(cell["methods"], THEIRS, show)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.bench_parser("Compare the time of a choice in eliza-ffi and in other libraries.")
    options = parser.parse_args(arguments)
    results = pages.stored_or_measured(options, "peers", run)
    return pages.publish("peers", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
