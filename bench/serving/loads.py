"""Measure a model under several loads: eliza-ffi's server and llama-server, in turns.

Both have the same slots and context, and get their requests from the same client. The loads are
sets of questions that our server knows by name, streams of text, and a long prompt. For each
question, llama-server gets the prompt that eliza-ffi decodes, with a grammar of the options. With
``--no-grammar``, it only writes two tokens, the fewest that an option has: with random weights, it
would apply the grammar to its whole vocabulary for each token. `rank` runs in this process.

    $ python -m bench.serving.loads model.gguf --out results --merge

``scripts/gpu_session.sh`` runs this on a GPU. REHEARSAL=1 makes all loads tiny.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.model import Model

from ..model import gbnf_of
from ..parts.figures import in_turns, median, ratios
from ..parts.machine import machine_facts, machine_line
from ..parts.pages import bench_parser, by_method, page_of, publish, stored_or_measured
from ..parts.questions import input_of, option_texts
from ..ranking import product_names
from ..together.llama_server import GREEDY, HOST, chosen_text, find_llama_server, serving
from .process import running_server
from .throughput import Request, Served, over_http

IS_REHEARSAL = bool(os.environ.get("REHEARSAL"))
OURS, THEIRS = "eliza-ffi", "llama-server"
CLIENTS, N_CTX, LABELS = ((1, 4), 4096, 1000) if IS_REHEARSAL else ((1, 16, 64), 65_536, 100_000)
SMALL, LARGE = SIZES = (1, 4) if IS_REHEARSAL else (3, 20)
"""The numbers of questions in the two sets."""

INPUT, PROMPT, ANSWER = (20, 64, 8) if IS_REHEARSAL else (100, 2048, 64)
"""Tokens of an input, of the long prompt, and of a stream."""

ROUNDS, CELL_SECONDS = (1 if IS_REHEARSAL else 3), 6.0
"""The rounds of a load, and the seconds after which no other round begins."""

OPTIONS = option_texts(3 if IS_REHEARSAL else 10)
STREAM = {"max_tokens": ANSWER, "stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True)
class Load:
    """Requests to measure. `count` returns how many `unit` the answers to an input contain."""

    name: str
    clients: int
    unit: str
    input_tokens: int
    requests: Callable[[Model, str, bool], dict[str, list[Request]]]  # of each server
    count: Callable[[list[Any]], int]


def questions(n: int) -> dict[str, Any]:
    """Return a set of `n` questions."""
    ask = "What does part {} of the message ask for?"
    return {
        f"part {i}": {"type": "choice", "instructions": ask.format(i), "choices": OPTIONS}
        for i in range(n)
    }


def decisions(n: int, clients: int) -> Load:
    """Return a load of decisions about a set of `n` questions."""
    asked = questions(n)

    def requests(model: Model, text: str, grammar: bool) -> dict[str, list[Request]]:
        ours: Request = ("/v1/decisions", {"model": f"set{n}", "input": text})
        theirs = [_completion(each, grammar) for each in model.decision_prompts(text, asked)]
        return {OURS: [ours], THEIRS: [("/completion", each) for each in theirs]}

    return Load(f"set of {n} questions", clients, "decisions", INPUT, requests, lambda _: n)


def _completion(prompt: str, grammar: bool) -> dict[str, Any]:
    begin = prompt.rstrip(" ")  # these spaces belong to the label
    labels = [prompt[len(begin) :] + each for each in OPTIONS]
    constrained = {"n_predict": 32, "grammar": gbnf_of(labels), "stop": labels}
    more = constrained if grammar else {"n_predict": 2, "ignore_eos": True}
    return {"prompt": begin, **more, **GREEDY}  # prompts in slots are reused by default


def texts(name: str, clients: int, n_tokens: int, counted: str, more: dict[str, Any]) -> Load:
    """Return a load of completions, which counts the tokens in the field `counted` of the usage."""

    def requests(_: Model, text: str, __: bool) -> dict[str, list[Request]]:
        body = {"model": "any", "prompt": text, "temperature": 0.0, **more}
        return {each: [("/v1/completions", body)] for each in (OURS, THEIRS)}

    def count(said: list[Any]) -> int:
        answer = said[0][-1] if isinstance(said[0], list) else said[0]  # the last event of a stream
        return int(answer["usage"][counted])

    return Load(name, clients, counted.replace("_", " "), n_tokens, requests, count)


LOADS = (
    *(decisions(SMALL, n) for n in CLIENTS),
    *(texts("streams", n, INPUT, "completion_tokens", STREAM) for n in CLIENTS),
    decisions(LARGE, 1),
    texts("long prompt", 1, PROMPT, "prompt_tokens", {"max_tokens": 1}),
)


def measure(name: str, path: Path, grammar: bool) -> dict[str, Any]:
    """Measure a model. After an error or a SIGTERM, return what has been measured."""
    program, peer = find_llama_server()
    if program is None:
        raise SystemExit(str(peer.problem))
    cells: list[dict[str, Any]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Model(path, n_slots=1, n_ctx=4096) as model:
            facts = model.describe()
            layers = [f"{p['layers']} on {p['device']}" for p in facts["model"]["placement"]]
            cells.append({"model": name, "layers": ", ".join(layers), **_ranked(model)})
            given = (program, path, max(CLIENTS), N_CTX, facts["threads"], (), ["--kv-unified"])
            seeds = itertools.count()
            with _our_server(path) as address, serving(*given) as theirs:
                addresses = {OURS: address, THEIRS: (HOST, theirs.port)}
                for load in LOADS:
                    measured = _measured(load, model, addresses, seeds, grammar)
                    cells.append({"model": name, **measured})
    except (KeyboardInterrupt, OSError, RuntimeError) as error:
        print(f"{name}: {error!r} after {len(cells)} of {1 + len(LOADS)} loads", file=sys.stderr)
    return {"machine": machine_facts(), "peer": peer.version, "cells": cells}


def _ranked(model: Model) -> dict[str, Any]:
    """Return the time of `rank`, with the prompt in the cache."""
    labels, ms = model.prepare_labels(product_names(LABELS)), []
    for i in range(ROUNDS + 1):  # the first is the warm-up
        prompt = f"Message: {input_of(model.tokenize, INPUT, i)}\nProduct: "
        model.rank(prompt, labels, max_passes=0)
        begin = time.perf_counter()
        model.rank(prompt, labels, max_passes=200)
        ms.append(1e3 * (time.perf_counter() - begin))
    return {"load": f"rank {LABELS:,} labels", "clients": 1, "p50_ms": {OURS: median(ms[1:])}}


def _measured(
    load: Load,
    model: Model,
    addresses: dict[str, tuple[str, int]],
    seeds: Iterator[int],
    grammar: bool,
) -> dict[str, Any]:
    """Run the rounds of a load. Both servers get the same inputs, which are new to them."""
    n, end = 2 * load.clients, float("inf")
    served: dict[str, list[Served]] = {name: [] for name in addresses}
    for turn, names in enumerate(in_turns(addresses, ROUNDS + 1)):
        if turn > 1 and time.perf_counter() > end:
            break
        inputs = [input_of(model.tokenize, load.input_tokens, next(seeds)) for _ in range(n)]
        asked = [load.requests(model, each, grammar) for each in inputs]
        for name in names:
            requests = [each[name] for each in asked]
            one = asyncio.run(over_http(addresses[name], requests, load.clients))
            served[name] += [one] if turn else []  # turn 0 is the warm-up
        end = end if turn else time.perf_counter() + CELL_SECONDS
    rates = {
        name: [sum(map(load.count, one.answers)) * one.a_second / n for one in listed]
        for name, listed in served.items()
    }
    cell = {
        "load": load.name,
        "clients": load.clients,
        "unit": load.unit,
        "rates": {name: median(each) for name, each in rates.items()},
        "times_theirs": median(ratios(rates[OURS], rates[THEIRS])),
        "p50_ms": {
            name: 1e3 * median([each for one in listed for each in one.seconds])
            for name, listed in served.items()
        },
    }
    same = [*_same(served)] if grammar and load.unit == "decisions" else []
    return {**cell, "same": sum(same) / len(same)} if same else cell


def _same(served: dict[str, list[Served]]) -> Iterator[bool]:
    """Yield for each question whether both servers chose the same option."""
    for ours, theirs in zip(served[OURS], served[THEIRS], strict=True):
        for (answer,), said in zip(ours.answers, theirs.answers, strict=True):
            for mine, other in zip(answer["answers"], said, strict=True):
                yield mine["choice"] == chosen_text(other).strip(" ")


@contextmanager
def _our_server(path: Path) -> Iterator[tuple[str, int]]:
    """Run ``eliza-ffi serve`` with sets of questions that are named after their size."""
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            Path(folder, f"set{n}.json").write_text(json.dumps(questions(n)))
        slots = ("--n-slots", max(CLIENTS), "--n-ctx", N_CTX)
        with running_server(path, *slots, "--questions", folder) as server:
            yield server.address


def markdown(results: dict[str, Any]) -> str:
    """Return the table of all models."""
    head = ["model", "load", "clients", "per second", OURS, THEIRS, "ratio", "same answers"]
    rows = [
        [
            cell["model"],
            cell["load"],
            str(cell["clients"]),
            cell.get("unit", "-"),
            *by_method(cell.get("rates", {}), (OURS, THEIRS), number),
            number(cell["times_theirs"]) if "times_theirs" in cell else "-",
            f"{cell['same']:.0%}" if "same" in cell else "-",
            *(
                number(cell["p50_ms"][each]) if each in cell["p50_ms"] else "-"
                for each in (OURS, THEIRS)
            ),
        ]
        for cell in results["cells"]
    ]
    head += [f"p50 in ms, {OURS}", THEIRS]
    line = f"{machine_line(results['machine'])} llama-server {results['peer']}."
    layers = {f"{e['model']}: layers {e['layers']}" for e in results["cells"] if e.get("layers")}
    return page_of(line, "; ".join(sorted(layers)), markdown_table(head, rows, left=2))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure a model under several loads, beside llama-server.", merge=True)
    parser.add_argument("file", type=Path, help="a GGUF file")
    parser.add_argument("--name", help="the model's name in the table (its file name)")
    parser.add_argument("--no-grammar", action="store_true", help="least work for llama-server")
    given = parser.parse_args(arguments)
    name = given.name or given.file.stem
    results = stored_or_measured(
        given,
        "loads",
        lambda: measure(name, given.file, not given.no_grammar),
        key=("model", "load", "clients"),
    )
    publish("loads", results, markdown(results), given)
    return int(sum(cell["model"] == name for cell in results["cells"]) <= len(LOADS))


if __name__ == "__main__":
    sys.exit(main())
