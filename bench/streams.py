"""Measure many streams at once, compared with llama-server.

Two things are measured. Text: each stream of one `Model` generates on its own thread. Choices: each
thread chooses among five labels, after prompts that are new. llama-server runs with its own
settings, and once more with eliza-ffi's. It has as many slots as there are streams, and one HTTP
client for each. All methods take turns, so a slow moment of the machine affects them all.

    $ make bench BENCH=streams                                      # everything, an hour
    $ python -m bench.streams --only 'F16 32k' --streams 8 --merge  # measure one cell again
    $ python -m bench.streams --model model.gguf --streams 8        # your model; prints the tables

llama-server is the program in the variable ``LLAMA_SERVER``, or the program that ``make peers``
builds. Without it, the report lists llama-server as not measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from page_tables import markdown_table, number

from eliza_ffi.model import Model

from .parts import pages
from .parts.figures import attempt, in_turns, percentiles, quartiles, ratios
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.workload import wide
from .together.llama_server import SETTLING_SECONDS, LlamaServer, find_llama_server, serving
from .together.streams import (
    CHOICES,
    Contender,
    OurStreams,
    RandomPrompts,
    choose_together,
    write_together,
)

STREAMS = (1, 2, 4, 8, 16)
SHOWN = (1, 16)  # in the table; the chart has all of them
MODELS = {
    subject.name: subject.path
    for subject in (
        wide("F16 32k", "llama-spm"),
        wide("F16 128k", "llama-bpe"),
        wide("Q4_K 32k", "llama-spm", "q4_k"),
        wide("Q4_K 128k", "llama-bpe", "q4_k"),
    )
}
PROMPT_TOKENS = 32
"""Length of the prompts before generated text."""
CHOICE_PROMPT_TOKENS = 64
N_CTX = 8192

OURS = "eliza-ffi"
SERVER = "llama-server"
SERVER_EQUAL = "llama-server, our settings"
SERVERS = {
    SERVER: (),
    SERVER_EQUAL: (
        *("--kv-unified", "--batch-size", "512", "--ubatch-size", "512"),
        *("--poll", "1", "--poll-batch", "1"),
    ),
}
"""The arguments of llama-server with its own settings and with eliza-ffi's."""

T = TypeVar("T")


@dataclass(frozen=True)
class StreamEffort:
    """How long to measure."""

    tokens: int  # tokens that every stream generates in a round
    rounds: int  # rounds of generating text, and of choices
    choice_rounds: int
    # The fewest choices of a round. If twice the number of streams is more, that many are made.
    least_choices: int


FULL = StreamEffort(tokens=48, rounds=7, choice_rounds=5, least_choices=8)
QUICK = StreamEffort(tokens=24, rounds=2, choice_rounds=2, least_choices=6)


def measure_cell(
    name: str, path: Path, n_streams: int, effort: StreamEffort, program: Path | None
) -> dict[str, Any]:
    """Measure one model with some streams, with every method.

    `program` is llama-server, or None if it is not available. The figures are rates, the ratios of
    eliza-ffi's rate to them in the same round, both as quartiles, and milliseconds.
    """
    problems: dict[str, str] = {}
    cell: dict[str, Any] = {"model": name, "streams": n_streams, "problems": problems}
    with noting_other_programs(cell, f"{name}, {n_streams} streams"), ExitStack() as opened:
        model = opened.enter_context(Model(path, n_slots=n_streams, n_ctx=N_CTX))
        contenders: dict[str, Contender] = {OURS: OurStreams(model, CHOICES)}
        n_threads = int(model.describe()["threads"])
        for label, more in SERVERS.items():
            if program is None:
                break
            starting = serving(program, path, n_streams, N_CTX, n_threads, CHOICES, more)
            server = attempt(problems, label, opened.enter_context, starting)
            if server is not None:
                contenders[label] = server
        prompts = RandomPrompts(model, seed=n_streams)
        n_choices = max(effort.least_choices, 2 * n_streams)
        written = _rounds(
            contenders,
            effort.rounds,
            problems,
            lambda contender: write_together(
                contender, prompts.draw(n_streams, PROMPT_TOKENS), effort.tokens
            ),
        )
        chosen = _rounds(
            contenders,
            effort.choice_rounds,
            problems,
            lambda contender: choose_together(
                contender, prompts.draw(n_choices, CHOICE_PROMPT_TOKENS), n_streams
            ),
        )
    cell["writing"] = _figures(written, "token_ms", "tokens_per_second")
    cell["choosing"] = _figures(chosen, "choice_ms", "choices_per_second")
    return cell


def _rounds(
    contenders: Mapping[str, Contender],
    n_rounds: int,
    problems: dict[str, str],
    run: Callable[[Contender], T],
) -> dict[str, list[T]]:
    """Run all contenders in turns. If a server fails, the others continue without it."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for name in chain.from_iterable(in_turns(contenders, n_rounds)):
        contender = contenders[name]
        time.sleep(SETTLING_SECONDS)
        is_server = isinstance(contender, LlamaServer)
        tried = partial(attempt, problems, name, run) if is_server else run
        result = tried(contender)
        if result is not None:
            found[name].append(result)
    return {name: listed for name, listed in found.items() if listed}


def _figures(rounds: Mapping[str, Sequence[Any]], ms: str, rate: str) -> dict[str, Any]:
    rates = {name: [getattr(one, rate) for one in listed] for name, listed in rounds.items()}
    return {
        name: {
            rate: quartiles(rates[name]),
            "times_theirs": quartiles(ratios(rates[OURS], rates[name])),
            **percentiles([each for one in listed for each in getattr(one, ms)], f"{ms}_*"),
        }
        for name, listed in rounds.items()
    }


def run(
    models: Mapping[str, Callable[[], Path]], streams: Iterable[int], effort: StreamEffort
) -> dict[str, Any]:
    """Measure some models, given by functions that return their files."""
    program, peer = find_llama_server()
    return {
        "machine": machine_facts(),
        "peers": [asdict(peer)],
        "plan": asdict(effort),
        "cells": [
            measure_cell(name, path(), n, effort, program)
            for name, path in models.items()
            for n in streams
        ],
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table."""
    plan, cells = results["plan"], results["cells"]
    named = [(f"{cell['model']}, {cell['streams']} streams", cell) for cell in cells]
    head = ["model", "streams"]
    for what in ("tokens per second", "choices per second"):
        head += [f"{what}, {OURS}", SERVER, "ratio (quartiles)"]
    return pages.page_of(
        f"{machine_line(results['machine'])} Medians of {plan['rounds']} rounds of text "
        f"({plan['tokens']} tokens after {PROMPT_TOKENS}) and {plan['choice_rounds']} of choices "
        f"({len(CHOICES)} labels after {CHOICE_PROMPT_TOKENS} tokens). *Ratio*: {OURS} / {SERVER} "
        "in the same round." + disturbance(named),
        markdown_table(
            head,
            (
                [
                    *(cell["model"], str(cell["streams"])),
                    *_rates(cell["writing"], "tokens_per_second"),
                    *_rates(cell["choosing"], "choices_per_second"),
                ]
                for cell in cells
                if cell["streams"] in SHOWN
            ),
        ),
        pages.notes_of(results, named, "Failed:"),
    )


def _rates(ways: Mapping[str, Any], figure: str) -> list[str]:
    """Return the rates of both programs, and the ratios."""
    return [
        *pages.by_method(ways, (OURS, SERVER), lambda way: number(way[figure][1])),
        *pages.by_method(ways, (SERVER,), lambda way: pages.spread(way["times_theirs"])),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.bench_parser("Measure many streams at once.", merge=True)
    pages.add_filter(parser, "--only", "this model", choices=MODELS)
    pages.add_filter(parser, "--streams", "N streams", type=int, metavar="N")
    parser.add_argument("--model", type=Path, metavar="FILE", help="measure this model; print only")
    options = parser.parse_args(arguments)
    if not set(options.streams) <= set(STREAMS):
        parser.error(f"--streams: expected some of {STREAMS}, got {options.streams}")
    if options.model is not None:
        own = {options.model.stem: lambda: options.model}
        print(markdown(run(own, options.streams or (1, 8), QUICK)))
        return 0
    models = {name: MODELS[name] for name in options.only or MODELS}
    results = pages.stored_or_measured(
        options,
        "streams",
        lambda: run(models, options.streams or STREAMS, FULL),
        key=("model", "streams"),
    )
    return pages.publish("streams", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
