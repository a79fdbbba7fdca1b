"""Measure answers of JSON Schemas: by a skeleton, under llguidance's masks, by a grammar.

Without a folder, of the few schemas that come with this. With one, of every ``.json`` file in it:
who can answer how many, and what answers of the first of them cost.

    $ python -m bench.schemas                             # a minute
    $ python -m bench.schemas FOLDER --most 20 --model FILE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eliza_ffi.measuring.tables import markdown_table, number
from eliza_ffi.model import Model

from ..parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from ..parts.pages import add_output_arguments, publish
from .measuring import METHODS, coverage, measure
from .samples import SAMPLES, schemas_in

ROUNDS = 5


def run(model: Model, schemas: Iterable[tuple[str, Any]], most: int, rounds: int) -> dict[str, Any]:
    """Measure schemas: all as to who can answer, the first `most` as to what that costs."""
    counts = {"schemas": 0, "skeleton": 0, "llguidance": 0, "either": 0}
    cells: list[dict[str, Any]] = []
    for name, schema in schemas:
        who = coverage(model, schema)
        counts["schemas"] += 1
        counts["either"] += any(who.values())
        for each, can in who.items():
            counts[each] += can
        if who["llguidance"] and len(cells) < most:
            cell: dict[str, Any] = {"schema": name}
            with noting_other_programs(cell):
                cell |= measure(model, schema, rounds)
            cells.append(cell)
    n_vocab = int(model.describe()["model"]["n_vocab"])
    return {"machine": machine_facts(), "n_vocab": n_vocab, "counts": counts, "cells": cells}


def markdown(results: dict[str, Any]) -> str:
    """Return the counts and the table."""
    counts, cells = results["counts"], results["cells"]
    line = f"{machine_line(results['machine'])} A vocabulary of {results['n_vocab']:,} tokens."
    disturbed = disturbance((cell["schema"], cell) for cell in cells)
    told = (
        f"Of {counts['schemas']:,} schemas a skeleton can say {counts['skeleton']:,}, llguidance "
        f"{counts['llguidance']:,}, either {counts['either']:,}."
    )
    head = ["schema", "mask, µs"]
    for name in METHODS:
        head += [f"{name}, ms", "tokens", "passes"]
    rows = []
    for cell in cells:
        row = [cell["schema"], number(cell["mask_us"]) if "mask_us" in cell else ""]
        for name in METHODS:
            one = cell["methods"].get(name)
            row += [number(one["ms"]), str(one["tokens"]), str(one["passes"])] if one else [""] * 3
        rows.append(row)
    return f"{line}{disturbed}\n\n{told}\n\n{markdown_table(head, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the figures, and print them."""
    parser = argparse.ArgumentParser(description="Measure answers of JSON Schemas.")
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--model", metavar="FILE", help="a GGUF file; else the embedded model")
    parser.add_argument("--most", type=int, default=20, help="schemas whose answers are timed (20)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each ({ROUNDS})")
    add_output_arguments(parser)
    options = parser.parse_args(arguments)
    schemas = SAMPLES.items() if options.folder is None else schemas_in(options.folder)
    with Model(options.model, n_ctx=2048) as model:
        results = run(model, schemas, options.most, options.rounds)
    publish("schemas", results, markdown(results), options.out, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
