"""Test the server under load while some clients misbehave, and measure its speed.

The server must answer every request once, and as a model in this process does. If the queue is
full, the client sends the request again. Meanwhile, other clients disconnect, send their bodies
slowly, send half a header or no HTTP, or do not read answers. At the end the queue must be empty,
and the report shows the memory, files and threads of the process before and after.

    $ python -m bench.serving                        # 64 clients with 2,000 requests each (an hour)
    $ python -m bench.serving --quick                # a minute
    $ python -m bench.serving --batching off         # without shared passes
    $ python -m bench.serving --beside               # 16 clients, compared with llama-server
    $ python -m bench.serving --beside --chat        # streams of chat, compared with llama-server
    $ python -m bench.serving --beside --render --docs docs/explanation/measurements.md
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import markdown_table

from eliza_ffi.model import Model

from ..parts.figures import percentiles
from ..parts.machine import disturbance, machine_facts, machine_line
from ..parts.pages import add_filter, bench_parser, page_of, publish, stored_or_measured
from ..together.llama_server import find_llama_server
from .beside import BESIDE, beside_llama_server, table_of_servers
from .chat import CHAT_MODEL, CLIENTS, ChatEffort, chat_beside_llama_server, tables_of_chat
from .clients import Outcome, ask_all, misbehave
from .process import ServerProcess, running_server
from .workload import Asked, mixture

N_DIFFERENT = 400
"""The number of different requests. Clients draw their requests from these."""

COMPARED_ROUNDS = 3
"""The rounds in which two servers take turns."""

QUICK_CLIENTS = (1, 4)
QUICK_CHAT = ChatEffort(rounds=1, prompt_tokens=16, tokens=8, long_tokens=16, arrivals=2)
"""The clients and the effort of ``--quick`` with ``--chat --beside``."""

ROUNDING = 0.05
"""The largest allowed difference of a probability. Requests in the same pass change the rounding,
which is coarse if weights have few bits."""

MEMORY_SECONDS = 5.0
"""The time between two measurements of the server's memory."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    program, peer = find_llama_server()
    if given.chat and not given.beside:
        parser.error("--chat: expected --beside, too")
    if given.beside and given.render is None and program is None:
        parser.error(str(peer.problem))
    if given.clients is None:
        given.clients = 16 if given.beside else 64
    if given.quick:
        given.clients, given.requests, given.inputs = 16, 20, 64
    name, measure, page = BENCHES[given.beside + given.chat]
    results = stored_or_measured(given, name, lambda: measure(given))
    publish(name, results, page(results), given)
    return 1 if results.get("wrong") or results.get("lost") else 0


def _load(given: argparse.Namespace) -> dict[str, Any]:
    with Model(given.model, options={"batching": given.batching}) as model:
        asked = mixture(min(N_DIFFERENT, given.clients * 8), given.seed, model)
    options = ["--batching", given.batching, "--queue", given.queue, "--deadline", given.deadline]
    with running_server(given.model, *options) as server:
        asyncio.run(ask_all(server.address, asked, 4, 10, ROUNDING, -1))  # the warm-up
        before = server.holds()
        begin = time.perf_counter()
        memory: list[int] = []
        outcome = asyncio.run(_ask(server, asked, given, memory))
        seconds = time.perf_counter() - begin
        _wait_until_idle(server)
        after, figures = server.holds(), server.figures()
    for text in (outcome.wrong + outcome.lost)[:20]:
        print(text, file=sys.stderr)
    facts = _facts(given, outcome, seconds, figures)
    facts["holds"] = {"before": before, "after": after}
    return facts | {"machine": machine_facts(), "memory": memory}


async def _ask(
    server: ServerProcess, asked: Sequence[Asked], given: argparse.Namespace, memory: list[int]
) -> Outcome:
    beside = Outcome()
    watch = asyncio.create_task(_note_memory(server, memory))
    spoilers = [
        asyncio.create_task(misbehave(server.address, asked, beside, f"{given.seed}-{i}"))
        for i in range(given.spoilers)
    ]
    outcome = await ask_all(
        server.address, asked, given.clients, given.requests, ROUNDING, given.seed
    )
    for task in (watch, *spoilers):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    outcome.misbehaved = beside.misbehaved
    return outcome


async def _note_memory(server: ServerProcess, memory: list[int]) -> None:
    """Record the server's memory in MiB every few seconds, if the system reports it."""
    while holds := server.holds():
        memory.append(holds["MiB"])
        await asyncio.sleep(MEMORY_SECONDS)


def _wait_until_idle(server: ServerProcess) -> None:
    for _ in range(600):
        figures = server.figures()
        if not any(value for name, value in figures.items() if "queue_requests" in name):
            return
        time.sleep(0.1)
    raise RuntimeError("a minute after the last request, the queue is not empty")


def _facts(
    given: argparse.Namespace, outcome: Outcome, seconds: float, figures: dict[str, float]
) -> dict[str, Any]:
    return {
        **{name: getattr(given, name) for name in ("clients", "batching", "queue")},
        **{name: getattr(outcome, name) for name in ("held", "refused", "exact", "farthest")},
        "requests": given.clients * given.requests,
        "wrong": len(outcome.wrong),
        "lost": len(outcome.lost),
        "requests_a_second": outcome.held / seconds,
        **percentiles(np.array(outcome.seconds) * 1e3, "*_ms"),
        "misbehaved": dict(sorted(outcome.misbehaved.items())),
        "broken_off": sum(
            value
            for name, value in figures.items()
            if name.startswith('eliza_requests_total{code="499"')
        ),
    }


NAMES = {"MiB": "memory in MiB", "files": "open files"}


def _page(facts: dict[str, Any]) -> str:
    rows = [
        ("requests", f"{facts['requests']:,} from {facts['clients']} clients"),
        ("answered once and correctly", f"{facts['held']:,}"),
        ("rejected with 429 and sent again", f"{facts['refused']:,}"),
        ("answered wrongly", f"{facts['wrong']:,}"),
        ("not answered", f"{facts['lost']:,}"),
        ("answers with identical texts or probabilities", f"{facts['exact']:,}"),
        ("largest difference of a probability", f"{facts['farthest']:.4f}"),
        ("cancelled because the client disconnected", f"{facts['broken_off']:.0f}"),
    ]
    rows += [(f"a misbehaving client {how}", f"{n:,}") for how, n in facts["misbehaved"].items()]
    rows += [
        (f"{NAMES.get(what, what)} before and after", f"{n:,}, {facts['holds']['after'][what]:,}")
        for what, n in facts["holds"]["before"].items()
    ]
    if memory := facts.get("memory"):
        quarters = (memory[round(k * (len(memory) - 1) / 4)] for k in range(5))
        rows.append(("memory in MiB at each quarter of the time", ", ".join(map(str, quarters))))
    table = markdown_table(("", f"batching={facts['batching']}"), rows)
    return page_of(machine_line(facts["machine"]), table)


def _compare(given: argparse.Namespace) -> dict[str, Any]:
    program, peer = find_llama_server()
    assert program is not None
    cells = [
        beside_llama_server(name, program, given.clients, given.inputs, COMPARED_ROUNDS)
        for name in given.only or BESIDE
    ]
    return {"machine": machine_facts(), "peer": peer.version, "cells": cells}


def _page_of_servers(results: dict[str, Any]) -> str:
    cells = results["cells"]
    disturbed = disturbance((cell["model"], cell) for cell in cells)
    line = f"{machine_line(results['machine'])} llama-server {results['peer']}.{disturbed}"
    return page_of(line, table_of_servers(cells))


def _compare_chat(given: argparse.Namespace) -> dict[str, Any]:
    program, peer = find_llama_server()
    assert program is not None
    name, path = CHAT_MODEL.name, given.model and Path(given.model)
    facts = chat_beside_llama_server(
        path.stem if path else name,
        path or CHAT_MODEL.path(),
        program,
        QUICK_CLIENTS if given.quick else CLIENTS,
        QUICK_CHAT if given.quick else ChatEffort(rounds=given.rounds),
    )
    return {"machine": machine_facts(), "peer": peer.version, **facts}


def _page_of_chat(results: dict[str, Any]) -> str:
    effort = results["effort"]
    line = (
        f"{machine_line(results['machine'])} llama-server {results['peer']}. Model: "
        f"{results['model']}; messages of {effort['prompt_tokens']} tokens, answers of "
        f"{effort['tokens']}; medians (quartiles) of {effort['rounds']} rounds."
    )
    disturbed = disturbance([(results["model"], results)])
    return page_of(f"{line}{disturbed}", tables_of_chat(results))


BENCHES = (
    ("serving", _load, _page),
    ("serving-beside", _compare, _page_of_servers),
    ("serving-chat-beside", _compare_chat, _page_of_chat),
)


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("Test the server under load, or measure its speed.")
    parser.add_argument("--model", metavar="FILE", help="a GGUF file (the embedded model)")
    for option, kind, default, what in (
        ("--clients", int, None, "simultaneous clients (64; 16 with --beside)"),
        ("--requests", int, 2000, "requests of each client (2000)"),
        ("--spoilers", int, 8, "misbehaving clients (8)"),
        ("--queue", int, 32, "the most waiting requests (32)"),
        ("--deadline", float, 300.0, "deadline of a request in seconds (300)"),
        ("--seed", int, 1, "seed of the requests (1)"),
        ("--inputs", int, 400, "with --beside: inputs of a round (400)"),
        ("--rounds", int, 5, "with --chat --beside: rounds (5)"),
    ):
        parser.add_argument(option, type=kind, default=default, metavar="N", help=what)
    parser.add_argument("--batching", choices=("auto", "off"), default="auto")
    parser.add_argument("--quick", action="store_true", help="a short run, one minute")
    parser.add_argument("--beside", action="store_true", help="compare with llama-server")
    parser.add_argument("--chat", action="store_true", help="with --beside: streams of chat")
    add_filter(parser, "--only", "this model, with --beside", choices=BESIDE)
    return parser


if __name__ == "__main__":
    sys.exit(main())
