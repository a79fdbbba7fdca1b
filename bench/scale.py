"""Measure what rows cost on one machine and on workers of Ray's, and what many of them would.

Passes are measured by their tokens, rows in this process, the way of a row to a worker and back,
and passes beside other processes. From these follows how many rows a second one and two workers
should do; they are then let do it. What is measured and what is reckoned stand side by side, and
the same sum goes on to 10^9 rows, on paper. Writes JSON and Markdown into ``bench/results``.

    $ python -m bench.scale --docs docs/scale.md       # ten minutes
    $ python -m bench.scale --quick                    # the smallest run, two minutes
    $ python -m bench.scale --model /m.gguf            # of another model; a GPU is used if there is
    $ python -m bench.scale --render --docs docs/scale.md       # measure nothing

Needs the ``ray`` extra.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi._resources import default_model_path
from eliza_ffi.model import Model

from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import add_output_arguments, publish
from .scaling.estimate import Costs, row_seconds, workers_per_driver
from .scaling.measuring import crowded_token, driver_seconds, pass_costs, ray_rows, rows_here

WORKERS = (1, 2)

ROWS = 10**9

TOKENS = (50, 200, 500)
"""Of a row's own, on paper."""

FLEETS = (100, 1_000, 10_000)
"""Workers, on paper."""


@dataclass(frozen=True)
class ScalePlan:
    """How much is measured.

    Attributes
    ----------
    rows : int
        Of each length, whose passes are measured.
    words : tuple of int
        In the inputs; by the first of them the host's share of a row is found.
    seconds : float
        About how long a number of workers is let work.
    """

    rows: int
    words: tuple[int, ...]
    seconds: float


FULL = ScalePlan(rows=400, words=(8, 40, 160), seconds=45.0)
SHORT = "**A short run: these figures are to be measured anew, on a machine that is quiet.**"

QUICK = ScalePlan(rows=64, words=(8, 80), seconds=8.0)


def run(plan: ScalePlan, path: str | None) -> dict[str, Any]:
    """Measure a model with one thread a worker, and return the results."""
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
            cell["reckoned"] = n / row_seconds(costs, each["tokens"], n)
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
    """Return the costs that results were written with; JSON has no numbers as keys."""
    told = dict(results["costs"])
    for name in ("tokens", "crowding"):
        told[name] = {int(n): seconds for n, seconds in told[name].items()}
    return Costs(**told)


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables."""
    costs = costs_of(results)
    said = disturbance([("passes and rows", results)])
    parts = [
        *([SHORT] if results["plan"]["seconds"] < FULL.seconds else []),
        f"{results['model']}, one thread a worker. {machine_line(results['machine'])}{said}",
        f"Passes of rows, at most {results['passes'][0]['at_once']} at once as decisions are, by "
        "the tokens that each row has of its own:",
        markdown_table(
            ["own tokens a row", "tokens a pass", "ms a pass", "ms a token"],
            (_pass_cells(each) for each in results["passes"]),
        ),
        f"A row takes {number(costs.host_seconds * 1e3)} ms longer than its passes while a core is "
        f"free, {number(costs.host_cpu_seconds * 1e3)} ms where each has its worker, and "
        f"{number(costs.driver_seconds * 1e6)} µs on the driver of a table. With "
        + " and ".join(f"{n} workers" for n in sorted(costs.crowding) if n > 1)
        + " on the machine a pass takes "
        + " and ".join(f"{costs.crowding[n]:.2f}" for n in sorted(costs.crowding) if n > 1)
        + " times as long.",
        "Rows of a table a second, one question each, in this process and on Ray:",
        markdown_table(
            ["own tokens a row", "workers", "rows/s", "reckoned", "off by", "start, s"],
            _rows_of_runs(results),
            left=1,
        ),
        f"{ROWS:,} rows on paper, by the same sum, {max(costs.crowding)} workers on a machine:",
        markdown_table(
            [
                "own tokens a row",
                "ms a row",
                *(f"{n:,} workers, hours" for n in FLEETS),
                "worker hours",
                "workers a driver feeds",
            ],
            (_on_paper(costs, tokens) for tokens in TOKENS),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _pass_cells(cost: Mapping[str, float]) -> list[str]:
    ms = cost["token_seconds"] * 1e3
    tokens = cost["pass_tokens"]
    return [number(cost["row_tokens"]), number(tokens), number(ms * tokens), number(ms)]


def _rows_of_runs(results: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for here in results["here"]:
        rows.append([number(here["tokens"]), "here", number(1 / here["seconds"]), "", "", ""])
        for cell in results["on_ray"]:
            if cell["words"] == here["words"]:
                rate, reckoned = cell["rows_per_second"], cell["reckoned"]
                rows.append(
                    [
                        number(cell["tokens"]),
                        str(cell["workers"]),
                        number(rate),
                        number(reckoned),
                        f"{reckoned / rate - 1:+.0%}",
                        number(cell["start_seconds"]),
                    ]
                )
    return rows


def _on_paper(costs: Costs, tokens: int) -> list[str]:
    seconds = row_seconds(costs, tokens, max(costs.crowding))
    return [
        str(tokens),
        number(seconds * 1e3),
        *(number(ROWS * seconds / n / 3600) for n in FLEETS),
        f"{ROWS * seconds / 3600:,.0f}",
        f"{workers_per_driver(costs, tokens):,.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure what rows cost on workers of Ray's.")
    parser.add_argument("--quick", action="store_true", help="the smallest run")
    parser.add_argument("--model", metavar="PATH", help="another model than the embedded one")
    parser.add_argument("--render", action="store_true", help="measure nothing, show the file")
    add_output_arguments(parser)
    options = parser.parse_args(arguments)
    name = "scale"
    if options.render:
        results = json.loads((options.out / f"{name}.json").read_text(encoding="utf-8"))
    else:
        plan = QUICK if options.quick else FULL
        results = run(plan, options.model)
    publish(name, results, markdown(results), options.out, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
