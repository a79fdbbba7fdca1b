"""Measure how the time of a choice grows with one parameter at a time.

The parameters are the vocabulary, the number and the length of the labels, the prompt, the width of
the model, and the threads. Every point is measured like a cell of ``bench/peers.py``. Writes JSON,
Markdown and a plot into ``bench/results``.

    $ python -m bench.growth
    $ python -m bench.growth --only choices --only threads --merge    # measure these again
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi._resources import default_model_path
from eliza_ffi.model import Model

from .choosing.cells import Others, Workload, measure_cell
from .choosing.rounds import REFERENCE, ChoiceEffort
from .methods import AUTO, GRAMMAR_LAST, LLGUIDANCE, METHODS, XGRAMMAR
from .parts.charts import draw_choices, draw_if_possible
from .parts.machine import disturbance, machine_facts, machine_line
from .parts.pages import (
    add_filter,
    bench_parser,
    by_method,
    notes_of,
    page_of,
    publish,
    stored_or_measured,
)
from .parts.workload import NOUNS, Subject, action_names, prompts

SHOWN = (AUTO, REFERENCE, GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR)

EFFORT = ChoiceEffort(repeat=15, budget=1.0)

USUAL = Subject("128k", "llama-bpe")
"""The model of all points that do not vary the model."""

Points = list[tuple[float | str, Workload]]
"""The measured points: the value of the parameter, or the key of the cell's figure that is the
value; and the workload."""


@dataclass(frozen=True)
class Growth:
    """A parameter to vary.

    Attributes
    ----------
    name : str
        Its name on the command line.
    points : callable
        Returns `Points`.
    """

    name: str
    title: str
    x_label: str
    points: Callable[[], Points]


def usual(subject: Subject = USUAL, texts: Sequence[str] | None = None, **more: Any) -> Workload:
    """Return the usual workload, with some changes.

    It has a model with 128k tokens and a width of 256, 30 action names and the planner's prompts.
    """
    texts = texts or action_names(30)
    return Workload(subject, texts, **{"prompts": prompts(list(texts), 2), **more})


def by_vocabulary() -> Points:
    subjects = (str(default_model_path()), "llama-spm", "llama-bpe", "gemma-4")
    return [("n_vocab", usual(Subject(vocab, vocab))) for vocab in subjects]


def by_choices() -> Points:
    return [(n, usual(texts=action_names(n))) for n in (3, 10, 30, 100, 300, 1000, 3000)]


def by_leaf_length(*, first_decides: bool) -> Points:
    """Return points with 30 names of several words that differ only in their first or last word."""
    points: Points = []
    for n_words in (1, 2, 4, 8, 16):
        common = NOUNS[30 : 30 + n_words - 1]
        texts = [
            "_".join([noun, *common] if first_decides else [*common, noun]) for noun in NOUNS[:30]
        ]
        points.append(("answer_tokens", usual(texts=texts)))
    return points


def by_prompt() -> Points:
    (prompt,) = prompts(action_names(30), 1)
    filler = "This is an older message that has nothing to do with it. "
    return [("prompt_tokens", usual(prompts=[filler * n + prompt])) for n in (0, 32, 96, 224)]


def by_width() -> Points:
    shapes = ((128, 2), (256, 4), (512, 8), (1024, 13))
    return [
        (width, usual(Subject("32k", "llama-spm", n_embd=width, n_layers=layers)))
        for width, layers in shapes
    ]


def by_threads() -> Points:
    with Model() as model:
        cores = int(model.describe()["threads"])
    wide = Subject("32k", "llama-spm", n_embd=1024, n_layers=13)
    counts = sorted({1, *(n for n in (2, 4, 8, 16, 32) if n < cores), cores})
    return [(n, usual(wide, n_threads=n)) for n in counts]


GROWTHS = (
    Growth("vocabulary", "Size of the vocabulary", "tokens of the vocabulary", by_vocabulary),
    Growth("choices", "Number of labels", "labels", by_choices),
    Growth(
        "first-word",
        "Label length, first word differs",
        "tokens of the chosen label",
        partial(by_leaf_length, first_decides=True),
    ),
    Growth(
        "last-word",
        "Label length, last word differs",
        "tokens of the chosen label",
        partial(by_leaf_length, first_decides=False),
    ),
    Growth("prompt", "Length of the prompt", "tokens of the prompt", by_prompt),
    Growth("width", "Width of the model", "width", by_width),
    Growth("threads", "Threads, with a wide model", "compute threads", by_threads),
)


def growth_named(name: str) -> Growth:
    """Return the parameter in `GROWTHS` with this name."""
    return next(growth for growth in GROWTHS if growth.name == name)


def measure(growth: Growth, others: Others, effort: ChoiceEffort) -> dict[str, Any]:
    """Measure the points of a parameter: each is a cell with the parameter's value as ``x``."""
    methods = [name for name in SHOWN if METHODS[name].choice]
    cells = []
    for x, workload in growth.points():
        cell = measure_cell(workload, effort, others, methods)
        cell["answer_tokens"] = cell["methods"][REFERENCE]["tokens"]
        cell["x"] = cell[x] if isinstance(x, str) else x
        cells.append(cell)
        print(f"{growth.name} {cell['x']:g}: {cell['seconds']:.1f} s", file=sys.stderr)
    return {"name": growth.name, "cells": cells}


def run(only: Sequence[str]) -> dict[str, Any]:
    """Measure the parameters in `only` (empty = all) and return the results."""
    found = Others.find()
    others = Others(tuple(peer for peer in found.peers if peer.name in SHOWN), found.logits)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in others.peers],
        "effort": asdict(EFFORT),
        "growths": [
            measure(growth, others, EFFORT) for growth in GROWTHS if not only or growth.name in only
        ],
    }


def markdown(results: dict[str, Any]) -> str:
    """Return a table for each parameter."""
    cells = [
        (f"{growth_named(growth['name']).title} {cell['x']:g}", cell)
        for growth in results["growths"]
        for cell in growth["cells"]
    ]
    parts = [machine_line(results["machine"]) + disturbance(cells)]
    for growth in results["growths"]:
        rows = [
            [
                f"{cell['x']:,.0f}" if cell["x"] >= 100 else f"{cell['x']:g}",
                *by_method(cell["methods"], SHOWN, lambda one: number(one["choice_ms"])),
                number(cell["pass_ms"]),
            ]
            for cell in growth["cells"]
        ]
        varied = growth_named(growth["name"])
        parts += [varied.title, markdown_table([varied.x_label, *SHOWN, "one pass"], rows)]
    return page_of(*parts, notes_of(results, cells, "Failed:"))


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw one panel for each parameter."""
    listed = [(growth_named(growth["name"]), growth["cells"]) for growth in results["growths"]]
    panels = [
        (varied.title, varied.x_label, [(cell["x"], cell["methods"]) for cell in cells])
        for varied, cells in listed
    ]
    draw_choices(panels, file, columns=4)


def main(arguments: Sequence[str] | None = None) -> int:
    names = [growth.name for growth in GROWTHS]
    parser = bench_parser("Measure how the time of a choice grows.", merge=True)
    add_filter(parser, "--only", "how time grows with this parameter", choices=names)
    options = parser.parse_args(arguments)
    results = stored_or_measured(options, "growth", lambda: run(options.only), "growths", ("name",))
    draw_if_possible(plot, results, options.out / "growth.png")
    return publish("growth", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
