"""Measure the accuracy of answers on real data with real models, beside other ways to answer.

For every model, data set and method: accuracy, NLL, calibration error, the answers that change with
the order of the options, and the speed. The methods take turns on the same rows. Results are stored
after each data set in ``bench/results/answers.json``. A later run measures only what is missing
(with ``--again`` everything).

    $ python -m bench.answers                                         # everything, hours
    $ python -m bench.answers --data trec spam --rows 50 --no-peers   # a first impression
    $ python -m bench.answers --labels 60 150 300 --seeds 5 --json bench/results/labels.json \
          --docs docs/explanation/measurements.md --plot bench/results/labels.svg
    $ python -m bench.answers --few-labels --models smollm2 --threads 1 \
          --data trec spam sentiment ratings tickets --json bench/results/few-labels.json \
          --docs docs/explanation/measurements.md
    $ python -m bench.answers --data trec-12 --rows 1000 --threads 1  # the speed of a table
    $ python -m bench.answers --render --data trec spam sentiment ratings tickets \
          --docs docs/explanation/measurements.md --plot bench/results/answers.svg

Requires the ``bench`` extra. Models and data are downloaded by `scripts/fetch_real_models.py`.
llama-server and typed-gguf use the programs that ``make peers`` builds.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fetch_real_models import fetch

from ..parts.machine import machine_facts
from ..parts.pages import RESULTS, as_json, fill_sections, stored
from .cells import measure_cells
from .datasets import SOURCES, load
from .methods import CANDIDATES, OURS, TO_DECIDE, AnswerMethod
from .peers import PEERS, peers_used
from .report import markdown, plot_labels, plot_methods

MODELS = ("smollm2", "gemma3-270m")
DATA = [name for name in SOURCES if name not in ("trec-12", "trec-50")]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    methods = [*OURS, *(PEERS if options.peers else ())]
    if options.labels is not None:
        methods = [each for each in methods if each.n_labels in options.labels]
    if options.inputs is not None:
        methods = [each for each in methods if each.n_inputs in options.inputs]
    if options.few_labels:
        named = {each for row in TO_DECIDE.values() for each in row}
        methods = [each for each in methods if each.name in named]
    if options.candidates:
        methods = [*CANDIDATES]
    if options.methods:
        methods = [each for each in methods if each.name in options.methods]
    results = stored(options.json) if options.json.is_file() else {"cells": []}
    if not options.render:
        before = {each["name"]: each["version"] for each in results.get("peers", ())}
        known = {each.name: each.version or before.get(each.name) for each in peers_used()}
        peers = [{"name": name, "version": each} for name, each in known.items() if each]
        results |= {"machine": machine_facts(), "peers": peers}
        for model in options.models:
            for seed in range(options.seeds):
                for data in options.data:
                    _measure(results, model, data, seed, methods, options)
    chosen = [
        cell
        for cell in results["cells"]
        if cell["model"] in options.models and cell["data"] in options.data
    ]
    shown = {**results, "cells": _in_order(chosen)}
    tables = markdown(shown)
    for page in options.docs:
        fill_sections(page, {options.json.stem: tables})
    if options.plot:
        (plot_labels if options.labels else plot_methods)(shown, options.plot)
    print(tables)
    return 0


def _measure(
    results: dict[str, Any],
    model: str,
    data: str,
    seed: int,
    methods: Sequence[AnswerMethod],
    options: argparse.Namespace,
) -> None:
    """Measure the missing methods on a data set, and store the results."""
    cells = {_key(cell): cell for cell in results["cells"]}
    missing = [
        method
        for method in methods
        if options.again
        or cells.get((model, data, seed, method.name), {"problem": ""}).get("problem") is not None
        or cells[model, data, seed, method.name]["n_rows"] != options.rows
    ]
    if not missing:
        return
    path = Path(model) if Path(model).is_file() else fetch(model)
    rows = load(data, seed)
    sizes = options.rows, options.budget, options.threads
    file = options.readings and options.readings / f"{path.stem}-{data}.pickle"
    known = pickle.loads(file.read_bytes()) if file and file.is_file() else {}
    for cell in measure_cells(model, path, rows, seed, missing, *sizes, known):
        cells[_key(cell)] = cell
    if file:
        file.write_bytes(pickle.dumps(known))
    results["cells"] = [*cells.values()]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(as_json(results), encoding="utf-8")


def _key(cell: dict[str, Any]) -> tuple[str, str, int, str]:
    return cell["model"], cell["data"], cell.get("seed", 0), cell["method"]


def _in_order(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort cells by data set and method as these are listed in the code."""
    data, methods = [*SOURCES], [each.name for each in (*OURS, *CANDIDATES, *PEERS)]
    known = [cell for cell in cells if cell["method"] in methods]
    return sorted(known, key=lambda cell: (data.index(cell["data"]), methods.index(cell["method"])))


def _parser() -> argparse.ArgumentParser:
    names = [each.name for each in (*OURS, *PEERS)]
    parser = argparse.ArgumentParser(
        prog="python -m bench.answers", description="Measure the accuracy of answers on real data."
    )
    add = parser.add_argument
    add("--models", nargs="+", default=MODELS, metavar="MODEL", help="names, or GGUF files")
    add("--data", nargs="+", default=DATA, choices=[*SOURCES], metavar="SET", help="data sets")
    add("--methods", nargs="+", default=[], choices=names, metavar="METHOD", help="only these")
    add("--rows", type=int, default=200, metavar="N", help="test rows of each data set (200)")
    add("--labels", nargs="+", type=int, metavar="N", help="only methods with so many labels")
    add("--seeds", type=int, default=1, metavar="N", help="draw so many samples of the rows (1)")
    add("--inputs", nargs="+", type=int, metavar="N", help="only methods with so many inputs")
    add("--few-labels", action="store_true", help="only the methods of README's table")
    add("--candidates", action="store_true", help="only the heads that calibrate chooses from")
    readings = "keep what learning methods read in this folder; valid for one version of eliza-ffi"
    add("--readings", type=Path, metavar="DIR", help=readings)
    budget = "seconds for each method and data set; slower methods answer fewer rows (300)"
    add("--budget", type=float, default=300.0, metavar="S", help=budget)
    threads = "compute threads of the language models; 1 if other programs use the other cores"
    add("--threads", type=int, default=0, metavar="N", help=threads)
    add("--peers", action=argparse.BooleanOptionalAction, default=True, help="also other ways")
    add("--again", action="store_true", help="measure what is stored again")
    add("--render", action="store_true", help="show the stored results; measure nothing")
    add("--json", type=Path, default=RESULTS / "answers.json", metavar="FILE", help="the results")
    docs = "fill the section of this page that has the name of the results"
    add("--docs", type=Path, action="append", default=[], metavar="FILE", help=docs)
    add("--plot", type=Path, metavar="FILE", help="draw a picture")
    return parser


if __name__ == "__main__":
    sys.exit(main())
