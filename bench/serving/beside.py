"""Compare eliza-ffi's server with llama-server in turns: same model, clients and questions.

The questions go to ``/v1/systemone``, which both servers have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.model import Model

from ..parts.figures import quartiles
from ..parts.machine import noting_other_programs
from ..parts.pages import spread
from ..parts.questions import input_of, option_texts, questions_of, subject_named, systemone_of
from ..together.llama_server import HOST, serving
from .process import running_server
from .throughput import Request, Served, figures_of, over_http

BESIDE = ("small decision model", "wide Q4_K decision model")
"""The models that both servers run."""

INPUT_TOKENS, N_QUESTIONS, N_OPTIONS = 100, 3, 10

N_SLOTS, TOKENS_A_SLOT = 16, 1024
"""The slots of each server, and the tokens of a slot."""

SHARE_OF_WIDE = 0.1
"""The share of the inputs that wide models get, because one input takes them half a second."""


def beside_llama_server(
    name: str,  # a name in `BESIDE`
    program: Path,  # llama-server
    n_clients: int,  # simultaneous clients of a server
    # Inputs of a round, all new to both servers. Wide models get `SHARE_OF_WIDE` of them.
    n_inputs: int,
    rounds: int,
) -> dict[str, Any]:
    """Measure both servers in turns and return the figures of a model."""
    subject = subject_named(name)
    facts: dict[str, Any] = {"model": name, "clients": n_clients}
    path = subject.path()
    n_inputs = max(n_clients, round(n_inputs * SHARE_OF_WIDE)) if subject.is_wide else n_inputs
    n_ctx = N_SLOTS * TOKENS_A_SLOT
    with (
        noting_other_programs(facts),
        Model(path, n_slots=1, n_ctx=TOKENS_A_SLOT) as model,
        running_server(str(path), "auto", n_clients, 600.0, n_slots=N_SLOTS, n_ctx=n_ctx) as ours,
        serving(
            program, path, N_SLOTS, n_ctx, int(model.describe()["threads"]), (), ["--kv-unified"]
        ) as theirs,
    ):
        options = option_texts(N_OPTIONS)
        questions = systemone_of(questions_of(N_QUESTIONS, options), options)
        servers = {"ours": ours.address, "llama-server": (HOST, theirs.port)}
        served: dict[str, list[Served]] = {name: [] for name in servers}
        said: dict[str, list[str]] = {name: [] for name in servers}
        for turn in range(-1, rounds):
            inputs = [
                input_of(model.tokenize, INPUT_TOKENS, turn * n_inputs + i)
                for i in range(n_inputs if turn >= 0 else n_clients)
            ]
            requests: list[list[Request]] = [
                [("/v1/systemone", {"questions": questions, "state": each})] for each in inputs
            ]
            for each, address in servers.items():
                one = asyncio.run(over_http(address, requests, n_clients))
                if turn >= 0:  # turn -1 is the warm-up
                    served[each].append(one)
                    said[each] += [
                        max(shares, key=shares.__getitem__)
                        for (answer,) in one.answers
                        for shares in (answer["answers"][q]["probabilities"] for q in questions)
                    ]
    facts["inputs"] = n_inputs * rounds
    facts["ways"] = {each: figures_of(listed) for each, listed in served.items()}
    facts["times_theirs"] = quartiles(
        [a.a_second / b.a_second for a, b in zip(*served.values(), strict=True)]
    )
    pairs = list(zip(*said.values(), strict=True))
    facts["same_answers"] = sum(a == b for a, b in pairs) / len(pairs)
    return facts


def table_of_servers(cells: Sequence[dict[str, Any]]) -> str:
    """Return the figures of all models as a table."""
    head = ["model", "inputs per second, eliza-ffi", "llama-server", "eliza-ffi / llama-server"]
    head += ["p50, p99 in ms, eliza-ffi", "llama-server", "same answers"]
    rows = []
    for cell in cells:
        both = [cell["ways"][name] for name in ("ours", "llama-server")]
        rows.append(
            [
                cell["model"],
                *(number(each["a_second"]) for each in both),
                spread(cell["times_theirs"]),
                *(f"{number(each['p50_ms'])}, {number(each['p99_ms'])}" for each in both),
                f"{cell['same_answers']:.0%}",
            ]
        )
    return markdown_table(head, rows)
