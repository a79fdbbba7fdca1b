"""Compare ways to generate JSON for a schema.

The methods are:

- `fill`;
- `generate` with llguidance's masks;
- if llama-cpp-python is installed: llguidance's masks and xgrammar's masks, each in a loop over
  llama-cpp-python, and llama-cpp-python's own grammar for a schema.

Each method generates a whole answer for a schema that it has not seen. The prompt is in its cache,
except for the last token. All methods take turns.

Without FOLDER, the benchmark uses a few built-in schemas. With FOLDER, it uses all ``.json`` files
in it: it counts the schemas that eliza-ffi can compile, and times the answers of the first ones.

    $ python -m bench.schemas                                         # a few minutes
    $ python -m bench.schemas FOLDER --most 20 --only 'trained 2k'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.errors import ElizaError
from eliza_ffi.model import Model

from ..methods import METHODS, OUR_MASKS, OURS, with_maker
from ..parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from ..parts.pages import add_filter, add_output_arguments, publish
from ..parts.workload import MODELS, Subject
from .answering import Answerer, AnsweringSetting
from .measuring import coverage, mask_costs, measure
from .samples import SAMPLES, schemas_in

ROUNDS = 5
MODEL_NAMES = ("trained 2k", "random 128k")
"""The first model generates short answers. The second has a vocabulary of a typical size."""

MASK_COSTS = {
    "mask_us": "computing a mask",
    "none_forced_us": "finding no forced token",
    "run_forced_us": "finding forced tokens",
}

PROMPT = "Message: the app crashes when I log in, please call me back.\nAnswer: "
N_CTX = 2048
MOST_TOKENS = 400


def run(
    subjects: Sequence[Subject], schemas: Iterable[tuple[str, Any]], most: int, rounds: int
) -> dict[str, Any]:
    """Count which schemas compile, and time answers for the first `most` of those."""
    counts = {"schemas": 0, "closed": 0, "compiled": 0}
    timed: dict[str, Any] = {}
    peers = {
        name: each.needs() for name, each in with_maker("answers").items() if each.needs is not None
    }
    cells: list[dict[str, Any]] = []
    with ExitStack() as open_ones:
        models = {
            subject.name: open_ones.enter_context(Model(subject.path(), n_ctx=N_CTX))
            for subject in subjects
        }
        first = next(iter(models.values()))
        for name, schema in schemas:
            who = coverage(first, schema)
            counts["schemas"] += 1
            for each, can in who.items():
                counts[each] += can
            if who["compiled"] and len(timed) < most:
                timed[name] = schema
        for name, model in models.items():
            cells += _cells(name, model, timed, rounds)
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer) for peer in {peer.name: peer for peer in peers.values()}.values()],
        "counts": counts,
        "cells": cells,
    }


def _cells(name: str, model: Model, schemas: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    facts = model.describe()
    prompt = tuple(map(int, model.prompt_tokens(PROMPT)))
    setting = AnsweringSetting(model, prompt, N_CTX, int(facts["threads"]), MOST_TOKENS)
    missing: dict[str, str] = {}
    cells = []
    with ExitStack() as open_ones:
        ways: dict[str, Answerer] = {}
        for label, method in with_maker("answers").items():
            assert method.answers is not None
            try:
                ways[label] = open_ones.enter_context(closing(method.answers(setting)))
            except (ImportError, ValueError, RuntimeError, ElizaError) as error:
                missing[label] = f"{type(error).__name__}: {error}"
        for schema_name, schema in schemas.items():
            cell: dict[str, Any] = {
                "model": name,
                "n_vocab": facts["model"]["n_vocab"],
                "schema": schema_name,
            }
            with noting_other_programs(cell):
                cell |= measure(ways, schema, rounds)
            cell["problems"] |= missing
            if OUR_MASKS in cell["methods"]:
                masks = model.session.guidance().json_schema(schema)
                result = model.generate(prompt, MOST_TOKENS, shape=masks)
                cell |= mask_costs(masks, result.tokens, rounds)
            cells.append(cell)
            print(f"{name}, {schema_name}", file=sys.stderr)
    return cells


def markdown(results: dict[str, Any]) -> str:
    """Return the counts and the tables."""
    counts, cells = results["counts"], results["cells"]
    peers = ", ".join(f"{peer['name']} {peer['version'] or 'missing'}" for peer in results["peers"])
    disturbed = disturbance((f"{cell['model']}, {cell['schema']}", cell) for cell in cells)
    labels = [name for name in METHODS if any(name in cell["methods"] for cell in cells)]
    others = [name for name in labels if name != OURS]
    counted = (
        f"Of {counts['schemas']:,} schemas, {counts['compiled']:,} compile, and "
        f"{counts['closed']:,} are closed."
    )
    parts = [
        f"{machine_line(results['machine'])} {peers}.{disturbed}",
        counted,
        f"Time of an answer relative to {OURS}, without compiling the schema: the median over the "
        "rounds, and the quartiles in parentheses",
        markdown_table(
            ["model", "schema", f"{OURS}, ms", *others],
            (
                [*_where(cell), _base_ms(cell), *(_ratio(cell, name) for name in others)]
                for cell in cells
            ),
        ),
        "Milliseconds until the first token of an answer, including compiling the schema",
        markdown_table(
            ["model", "schema", *labels],
            ([*_where(cell), *(_first(cell, name) for name in labels)] for cell in cells),
        ),
        "Microseconds per token of an answer, including the first token",
        markdown_table(
            ["model", "schema", *labels],
            ([*_where(cell), *(_per_token(cell, name) for name in labels)] for cell in cells),
        ),
        "Tokens of an answer / passes after the prompt; * = the answer is not valid",
        markdown_table(
            ["model", "schema", *labels],
            ([*_where(cell), *(_size(cell, name) for name in labels)] for cell in cells),
        ),
        "Microseconds of llguidance's own work, which runs during the forward passes",
        markdown_table(
            ["model", "schema", *MASK_COSTS.values()],
            ([*_where(cell), *(_alone(cell, name) for name in MASK_COSTS)] for cell in cells),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _where(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], cell["schema"]]


def _base_ms(cell: dict[str, Any]) -> str:
    ours = cell["methods"].get(OURS) or cell["methods"].get(OUR_MASKS)
    return number(ours["ms"]) if ours else "-"


def _ratio(cell: dict[str, Any], name: str) -> str:
    low, middle, high = cell["methods"].get(name, {}).get("times_ours", (None, None, None))
    return "-" if middle is None else f"{number(middle)} ({number(low)}-{number(high)})"


def _first(cell: dict[str, Any], name: str) -> str:
    one = cell["methods"].get(name)
    if one is None or one["first_ms"] is None:
        return "-"
    return number(one["compile_ms"] + one["first_ms"])


def _per_token(cell: dict[str, Any], name: str) -> str:
    one = cell["methods"].get(name)
    return "-" if one is None else number(1e3 * one["ms"] / one["tokens"])


def _alone(cell: dict[str, Any], name: str) -> str:
    return number(cell[name]) if name in cell else "-"


def _size(cell: dict[str, Any], name: str) -> str:
    one = cell["methods"].get(name)
    return (
        "-"
        if one is None
        else f"{one['tokens']} / {one['passes']}{'' if one['is_valid'] else ' *'}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write and print the figures."""
    by_name = {subject.name: subject for subject in MODELS}
    parser = argparse.ArgumentParser(description="Compare ways to generate JSON for a schema.")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="a folder with schemas (the built-in schemas)",
    )
    add_filter(parser, "--only", "this model", choices=by_name)
    parser.add_argument(
        "--most", type=int, default=20, help="the most schemas whose answers are timed (20)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds for each schema ({ROUNDS})"
    )
    add_output_arguments(parser)
    options = parser.parse_args(arguments)
    schemas = SAMPLES.items() if options.folder is None else schemas_in(options.folder)
    subjects = [by_name[name] for name in options.only or MODEL_NAMES]
    results = run(subjects, schemas, options.most, options.rounds)
    publish("schemas", results, markdown(results), options.out, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
