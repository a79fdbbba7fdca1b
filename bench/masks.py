"""Compare the time to compute token masks in eliza-ffi, llguidance and xgrammar.

All libraries get the same vocabularies (32k, 128k and 262k tokens, without a model), constraints
and tokens. Warm and cold masks are measured separately. The benchmark also measures the time to
build the vocabulary's trie, its size, and the time for each node of a walk. Writes JSON, Markdown
and a plot into ``bench/results``.

    $ python -m bench.masks
    $ python -m bench.masks --quick                       # under 40 seconds
    $ python -m bench.masks --render                      # measure nothing

Requires the ``bench`` extra and a build with the test hooks. Libraries that are not installed are
left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eliza_ffi._resources import default_model_path

from .masking.constraints import Constraint, constraints
from .masking.engines import Eliza
from .masking.measuring import MaskEffort, Places, agreement, measure
from .masking.native import NativeVocabulary
from .masking.node_cost import (
    KINDS,
    gigahertz,
    node_instructions,
    node_times,
)
from .masking.pages import markdown, plot
from .masking.vocabularies import TokenBytes
from .methods import OURS, BenchMethod, with_maker
from .parts.charts import draw_if_possible
from .parts.hooks import find_hooks
from .parts.machine import machine_facts, noting_other_programs
from .parts.pages import RESULTS, add_filter, bench_parser, publish, stored_or_measured

VOCABULARIES = {"32k": "llama-spm", "128k": "llama-bpe", "262k": "gemma-4"}
MEASURED: dict[str, BenchMethod] = with_maker("masks")
FULL = MaskEffort(rounds=5, cold_places=60, cold_rounds=2)
QUICK = MaskEffort(rounds=1, cold_places=20, cold_rounds=1)


def with_quote_ms(tokens: TokenBytes, hooks: Path, rounds: int = 3) -> float:
    """Return the milliseconds to build the trie of the tokens that contain a quote.

    The first mask inside a string of a JSON value builds this trie, and later masks reuse it. So
    the time is the difference between the first mask and a later one. The fastest round counts.
    """
    with_quote = []
    token = tokens.texts.index(b'"')
    for _ in range(rounds):
        vocabulary, spent = NativeVocabulary(hooks, tokens.texts), []
        for _ in range(4):
            vocabulary.forget()
            spent.append(int(vocabulary.walk({"json": "value"}).time([token, token])[1]))
        with_quote.append((spent[0] - min(spent[1:])) / 1e6)
    return max(min(with_quote), 0.0)


def measure_vocabulary(
    name: str,
    file: str,
    peers: Sequence[str],
    effort: MaskEffort,
    hooks: Path,
    wanted: Sequence[Constraint],
    kinds: Sequence[str] = tuple(KINDS),
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure a vocabulary.

    Returns
    -------
    tuple
        The facts about its trie, and one cell for each constraint.
    """
    tokens = TokenBytes.read(file)
    build_ms: dict[str, float] = {}
    for _ in range(2):  # the faster time counts
        prepared = {
            name: method.masks(tokens, hooks)
            for name, method in MEASURED.items()
            if method.masks and name in (OURS, *peers)
        }
        for each, engine in prepared.items():
            took = 1e3 * engine.vocabulary_seconds
            build_ms[each] = min(took, build_ms.get(each, took))
    ours = Eliza(tokens, hooks)
    facts = {
        "name": name,
        "vocabulary": file,
        "tokens": len(tokens.texts),
        "nodes": ours.vocabulary.n_nodes,
        "bytes": ours.vocabulary.size_bytes,
        "build_ms": build_ms,
        "with_quote_ms": with_quote_ms(tokens, hooks),
        "node_cost": node_times(kinds, tokens, ours.vocabulary, 5 * effort.rounds),
    }
    cells = []
    for constraint in wanted:
        places = Places(tokens, constraint, effort.cold_places)
        cell: dict[str, Any] = {"vocabulary": name, "constraint": constraint.name}
        with noting_other_programs(cell, f"{name}, {constraint.name}"):
            cell["engines"] = {
                each: measure(engine, constraint, places, effort)
                for each, engine in prepared.items()
            }
            agreed = agreement(list(prepared.values()), constraint, places)
        cell |= {"places": len(places.some), "agreement": dict(zip(peers, agreed, strict=True))}
        cells.append(cell)
    return facts, cells


def run(effort: MaskEffort, vocabularies: Mapping[str, str], *, quick: bool) -> dict[str, Any]:
    """Measure everything.

    If `quick`, no instructions are counted, and nodes are timed only with the recognizer
    ``"anything"``.
    """
    hooks = find_hooks()
    found = [method.needs() for method in MEASURED.values() if method.needs]
    for peer in found:
        if peer.problem is not None:
            print(f"bench.masks: without {peer.name}: {peer.problem}", file=sys.stderr)
    peers = {peer.name: peer.version for peer in found if peer.problem is None}
    results: dict[str, Any] = {
        "machine": machine_facts(),
        "peers": peers,
        "effort": asdict(effort),
        "gigahertz": gigahertz(),
        "instructions": None,
        "vocabularies": [],
        "cells": [],
    }
    kinds = list(KINDS)[:1] if quick else list(KINDS)
    if not quick:
        embedded = TokenBytes.from_file(Path(default_model_path()))
        results["instructions"] = node_instructions(hooks, embedded.texts)
    for name, file in vocabularies.items():
        facts, cells = measure_vocabulary(
            name, file, list(peers), effort, hooks, constraints(), kinds
        )
        results["vocabularies"].append(facts)
        results["cells"] += cells
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser(
        "Compare the time to compute token masks in eliza-ffi and in other libraries."
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="under 40 seconds; writes no files unless --out or --docs is given",
    )
    add_filter(parser, "--only", "this vocabulary", choices=VOCABULARIES)
    options = parser.parse_args(arguments)
    wanted = {name: VOCABULARIES[name] for name in options.only or VOCABULARIES}
    effort = QUICK if options.quick else FULL
    results = stored_or_measured(options, "masks", lambda: run(effort, wanted, quick=options.quick))
    if options.quick and not options.docs and options.out == RESULTS:
        print(markdown(results))
        return 0
    draw_if_possible(plot, results, options.out / "masks.png")
    return publish("masks", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
