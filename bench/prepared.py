"""Measure the time and memory of preparing sets of labels of various sizes, and of setting them.

For comparison, the same sets are prepared from Python, with one call to tokenize each name and one
to check its tokens.

    $ python -m bench.prepared    # a minute
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from held import Held
from make_test_models import cached_model
from page_tables import markdown_table, number

from eliza_ffi.choices.label_set import string_choices
from eliza_ffi.library.protocol import STOP_AT_LEAF, StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.session.lifecycle import open_stream

from .parts.figures import median
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import bench_parser, publish, stored_or_measured

COUNTS = (5, 1000, 10_000, 100_000)
MOST_FROM_PYTHON = 10_000
"""The largest set that is also prepared from Python. Its time grows in proportion to the names."""

LEAST_FOR_MEMORY = 10_000
"""The smallest set whose memory is measured. Smaller sets fit into memory that was freed before."""

ROUNDS = 3
TIMES_SET = 200

SYLLABLES = (
    *("ka", "lo", "mi", "ten", "ra", "vor", "sul"),
    *("be", "dor", "ni", "qua", "zi", "tra", "mon"),
)


def names(count: int, seed: int) -> list[str]:
    """Draw distinct names, such as ``"Kalomiten 17"``."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(SYLLABLES), (count, 4))
    return [
        "".join(SYLLABLES[i] for i in row).title() + f" {place}" for place, row in enumerate(drawn)
    ]


def seconds(act: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def bytes_per_label(model: Model, count: int) -> float:
    """Return the resident memory of prepared labels, without their strings."""
    choices = string_choices(names(count, ROUNDS))
    before = Held.now()
    kept = model.prepare_labels(choices)
    return (Held.now().mib - before.mib) * 2**20 / len(kept.texts)


def measure(model: Model, count: int) -> dict[str, Any]:
    """Measure a set of `count` names."""
    memory = bytes_per_label(model, count) if count >= LEAST_FOR_MEMORY else None
    ours, python, microseconds = [], [], []
    for seed in range(ROUNDS):
        choices = string_choices(names(count, seed))
        ours.append(seconds(partial(model.prepare_labels, choices)))
        if count <= MOST_FROM_PYTHON:
            prepare = partial(choices.payload, model.tokenize, model.detokenize)
            python.append(seconds(prepare))
    prepared = model.binding.prepare_choices(model.session.ctx, names(count, 0))
    with open_stream(model.binding, model.session.ctx, StreamConfig()) as stream:
        model.binding.prefill(stream, model.tokenize("Which one? ", True))
        for _ in range(TIMES_SET):
            set_them = partial(model.binding.set_choices, stream, prepared, STOP_AT_LEAF)
            microseconds.append(1e6 * seconds(set_them))
            model.binding.clear_token_trie(stream)
    return {
        "names": count,
        "labels_ms": 1e3 * median(ours),
        "python_ms": 1e3 * median(python) if python else None,
        "set_us": median(microseconds),
        "bytes_per_label": memory,
    }


def run() -> dict[str, Any]:
    """Measure sets of all sizes."""
    cells = []
    path = cached_model("llama-bpe", n_embd=64, n_layers=2, seed=1)
    with Model(path, n_ctx=512) as model:
        for count in COUNTS:
            cell: dict[str, Any] = {}
            with noting_other_programs(cell):
                cell |= measure(model, count)
            cells.append(cell)
        n_vocab = int(model.describe()["model"]["n_vocab"])
    return {"machine": machine_facts(), "n_vocab": n_vocab, "cells": cells}


def markdown(results: dict[str, Any]) -> str:
    """Return the table."""
    cells = results["cells"]
    disturbed = disturbance((f"{cell['names']:,} labels", cell) for cell in cells)
    rows = [
        [
            f"{cell['names']:,}",
            number(cell["labels_ms"]),
            "" if cell["python_ms"] is None else number(cell["python_ms"]),
            "" if cell["python_ms"] is None else number(cell["python_ms"] / cell["labels_ms"]),
            number(cell["set_us"]),
            "" if cell["bytes_per_label"] is None else number(cell["bytes_per_label"]),
        ]
        for cell in cells
    ]
    head = ["labels", "prepare_labels, ms", "from Python, ms", "ratio"]
    head += ["setting them, µs", "bytes per label"]
    line = f"{machine_line(results['machine'])} The vocabulary has {results['n_vocab']:,} tokens."
    return f"{line}{disturbed}\n\n{markdown_table(head, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = bench_parser("Measure prepared labels.").parse_args(arguments)
    results = stored_or_measured(options, "prepared", run)
    return publish("prepared", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
