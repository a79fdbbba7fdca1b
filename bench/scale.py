"""Measure rows of a table in this process and on Ray workers, and estimate very large tables.

The benchmark measures four costs: passes of several lengths, rows in this process, the way of a row
from the driver to a worker and back, and passes while other processes run passes as well. From
these costs it estimates the rows per second of one and two workers. Then it measures them. The
tables show estimates and measurements side by side, and the same estimate for 10^9 rows. Writes
JSON and Markdown into ``bench/results``.

    $ python -m bench.scale --docs docs/scale.md                # ten minutes
    $ python -m bench.scale --quick                             # the smallest run, two minutes
    $ python -m bench.scale --model /m.gguf                     # your model; uses a GPU if present
    $ python -m bench.scale --render --docs docs/scale.md       # measure nothing

Requires the ``ray`` extra.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi._resources import default_model_path
from eliza_ffi.model import Model

from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import bench_parser, page_of, publish, stored_or_measured
from .scaling.estimate import Costs, row_seconds, workers_per_driver
from .scaling.measuring import crowded_token, driver_seconds, pass_costs, ray_rows, rows_here

WORKERS = (1, 2)

ROWS = 10**9

TOKENS = (50, 200, 500)
"""The tokens of a row in the estimate for `ROWS` rows."""

FLEETS = (100, 1_000, 10_000)
"""The numbers of workers in the estimate for `ROWS` rows."""


@dataclass(frozen=True)
class ScalePlan:
    """How long to measure.

    Attributes
    ----------
    rows : int
        Rows of each length, for measuring passes.
    words : tuple of int
        The numbers of words of the inputs. The first number is used to measure the work of a row
        outside the passes.
    seconds : float
        The approximate duration of each measurement with workers.
    """

    rows: int
    words: tuple[int, ...]
    seconds: float


FULL = ScalePlan(rows=400, words=(8, 40, 160), seconds=45.0)
SHORT = "**These figures are from a short run. Measure them again on a quiet machine.**"

QUICK = ScalePlan(rows=64, words=(8, 80), seconds=8.0)


def run(plan: ScalePlan, path: str | None) -> dict[str, Any]:
    """Measure a model with one thread per worker, and return the results."""
    machine = machine_facts()
    measured: dict[str, Any] = {"model": Path(path or default_model_path()).name}
    here: list[dict[str, Any]] = []
    with noting_other_programs(measured), Model(path, n_threads=1) as model:
        passes = pass_costs(model, plan.rows)
        for words in plan.words:
            n_rows = _rows(rows_here(model, words, 8), plan, 1)
            here.append({"words": words, **rows_here(model, words, n_rows)})
        driver = driver_seconds(plan.words[0], 20_000, model)
        crowded = {n: crowded_token(path, 1, n) for n in WORKERS}
    costs = Costs(
        tokens={round(each["row_tokens"]): each["token_seconds"] for each in passes},
        cores=machine["cores"],
        host_seconds=0.0,
        host_cpu_seconds=0.0,
        driver_seconds=driver,
        crowding={n: max(seconds / crowded[1], 1.0) for n, seconds in crowded.items()},
    )
    shortest = here[0]
    in_passes = row_seconds(costs, shortest["tokens"])
    costs = replace(
        costs,
        host_seconds=max(shortest["seconds"] - in_passes, 0.0),
        host_cpu_seconds=max(shortest["cpu_seconds"] - in_passes, 0.0),
    )
    on_ray: list[dict[str, Any]] = []
    for each in here:
        for n in WORKERS:
            cell: dict[str, Any] = {"words": each["words"], "tokens": each["tokens"], "workers": n}
            cell |= ray_rows(path, each["words"], _rows(each, plan, n), n)
            cell["estimated"] = n / row_seconds(costs, each["tokens"], n)
            on_ray.append(cell)
            print(f"{each['words']} words, {n} workers: {cell}", file=sys.stderr)
    return {
        "machine": machine,
        "plan": asdict(plan),
        **measured,
        "passes": passes,
        "costs": asdict(costs),
        "here": here,
        "on_ray": on_ray,
    }


def _rows(found: Mapping[str, float], plan: ScalePlan, n_workers: int) -> int:
    return max(round(plan.seconds * n_workers / found["seconds"]), 32)


def costs_of(results: Mapping[str, Any]) -> Costs:
    """Return the costs in some results, with keys as numbers, which JSON stores as strings."""
    stored = dict(results["costs"])
    for name in ("tokens", "crowding"):
        stored[name] = {int(n): seconds for n, seconds in stored[name].items()}
    return Costs(**stored)


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables."""
    costs = costs_of(results)
    disturbed = disturbance([("passes and rows", results)])
    return page_of(
        *([SHORT] if results["plan"]["seconds"] < FULL.seconds else []),
        f"{results['model']}, one thread per worker. {machine_line(results['machine'])}{disturbed}",
        f"Time of a pass, with at most {results['passes'][0]['at_once']} rows at once, as in "
        "`decide_many`. The tokens of a row do not include the prefix that all rows share:",
        markdown_table(
            ["tokens per row", "tokens per pass", "ms per pass", "ms per token"],
            (_pass_cells(each) for each in results["passes"]),
        ),
        "In addition to its passes, a row takes "
        f"{number(costs.host_seconds * 1e3)} ms if a core is free, "
        f"{number(costs.host_cpu_seconds * 1e3)} ms if every core has a worker, and "
        f"{number(costs.driver_seconds * 1e6)} µs on the driver of a table. "
        + " ".join(
            f"With {n} workers on the machine, a pass takes {costs.crowding[n]:.2f} times as long."
            for n in sorted(costs.crowding)
            if n > 1
        ),
        "Rows of a table per second with one question each, in this process and on Ray: measured, "
        "and estimated from the costs above:",
        markdown_table(
            ["tokens per row", "workers", "rows/s", "estimated rows/s", "error", "start, s"],
            _rows_of_runs(results),
            left=1,
        ),
        f"The same estimate for {ROWS:,} rows, with {max(costs.crowding)} workers per machine:",
        markdown_table(
            [
                "tokens per row",
                "ms per row",
                *(f"hours, {n:,} workers" for n in FLEETS),
                "worker hours",
                "workers per driver",
            ],
            (_estimated(costs, tokens) for tokens in TOKENS),
        ),
    )


def _pass_cells(cost: Mapping[str, float]) -> list[str]:
    ms = cost["token_seconds"] * 1e3
    tokens = cost["pass_tokens"]
    return [number(cost["row_tokens"]), number(tokens), number(ms * tokens), number(ms)]


def _rows_of_runs(results: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for here in results["here"]:
        rate = number(1 / here["seconds"])
        rows.append([number(here["tokens"]), "this process", rate, "", "", ""])
        for cell in results["on_ray"]:
            if cell["words"] == here["words"]:
                measured, estimated = cell["rows_per_second"], cell["estimated"]
                rows.append(
                    [
                        number(cell["tokens"]),
                        str(cell["workers"]),
                        number(measured),
                        number(estimated),
                        f"{estimated / measured - 1:+.0%}",
                        number(cell["start_seconds"]),
                    ]
                )
    return rows


def _estimated(costs: Costs, tokens: int) -> list[str]:
    seconds = row_seconds(costs, tokens, max(costs.crowding))
    return [
        str(tokens),
        number(seconds * 1e3),
        *(number(ROWS * seconds / n / 3600) for n in FLEETS),
        f"{ROWS * seconds / 3600:,.0f}",
        f"{workers_per_driver(costs, tokens):,.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure rows of a table in this process and on Ray workers.")
    parser.add_argument("--quick", action="store_true", help="the smallest run, two minutes")
    parser.add_argument("--model", metavar="PATH", help="a GGUF file (the embedded model)")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    results = stored_or_measured(options, "scale", lambda: run(plan, options.model))
    return publish("scale", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
