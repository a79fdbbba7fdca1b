"""Compare eliza-ffi's server with llama-server in turns: same model, clients and prompts.

eliza-ffi's server knows the question by name, so its requests have only an input. llama-server
gets the tokens of the same prompts, the answers as a grammar, and ``cache_prompt``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions import Choice
from eliza_ffi.evidence.deciding import plan_of
from eliza_ffi.model import Model

from ..model import gbnf_of
from ..parts.figures import quartiles
from ..parts.machine import noting_other_programs
from ..parts.pages import spread
from ..parts.questions import input_of
from ..parts.workload import GEMMA, SMOLLM2
from ..together.llama_server import GREEDY, HOST, serving
from .process import running_server
from .throughput import Request, Served, figures_of, over_http

BESIDE = {each.name: each for each in (SMOLLM2, GEMMA)}
"""The models that both servers run."""

SET = "topic"
INSTRUCTIONS = "What is the message about?"
OPTIONS = [
    *("billing", "refund", "delivery", "login", "account", "bug"),
    *("feature", "spam", "praise", "complaint", "appointment", "other"),
]

INPUT_TOKENS = range(20, 61)

N_SLOTS, TOKENS_A_SLOT = 16, 1024
"""The slots of each server, and the tokens of a slot."""


def beside_llama_server(
    name: str,  # a name in `BESIDE`
    program: Path,  # llama-server
    n_clients: int,  # simultaneous clients of a server
    n_inputs: int,  # inputs of a round, all new to both servers
    rounds: int,
) -> dict[str, Any]:
    """Measure both servers in turns and return the figures of a model."""
    facts: dict[str, Any] = {"model": name, "clients": n_clients, "inputs": n_inputs * rounds}
    path, n_ctx = BESIDE[name].path(), N_SLOTS * TOKENS_A_SLOT
    with (
        noting_other_programs(facts),
        Model(path, n_slots=1, n_ctx=TOKENS_A_SLOT) as model,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder, f"{SET}.json")
        question = {"type": "choice", "instructions": INSTRUCTIONS, "choices": OPTIONS}
        file.write_text(json.dumps({SET: question}))
        n_threads = int(model.describe()["threads"])
        options = ["--queue", n_clients, "--n-slots", N_SLOTS, "--n-ctx", n_ctx]
        with (
            running_server(path, *options, "--questions", file) as ours,
            serving(program, path, N_SLOTS, n_ctx, n_threads, (), ["--kv-unified"]) as theirs,
        ):
            addresses = {"ours": ours.address, "llama-server": (HOST, theirs.port)}
            served: dict[str, list[Served]] = {each: [] for each in addresses}
            for turn in range(-1, rounds):  # turn -1 is the warm-up
                seeds = range(turn * n_inputs, turn * n_inputs + n_inputs)
                inputs = [
                    input_of(model.tokenize, INPUT_TOKENS[seed % len(INPUT_TOKENS)], seed)
                    for seed in seeds
                ]
                for each, address in addresses.items():
                    ask = _ask_ours if each == "ours" else _ask_llama_server
                    requests = [[ask(model, text)] for text in inputs]
                    one = asyncio.run(over_http(address, requests, n_clients))
                    if turn >= 0:
                        served[each].append(one)
    facts["ways"] = {each: figures_of(listed) for each, listed in served.items()}
    facts["times_theirs"] = quartiles(
        [a.a_second / b.a_second for a, b in zip(*served.values(), strict=True)]
    )
    return facts


def _ask_ours(_: Model, text: str) -> Request:
    return "/v1/decisions", {"model": SET, "input": text}


def _ask_llama_server(model: Model, text: str) -> Request:
    """Return a completion of the tokens of the prompt that the other server makes."""
    plan = plan_of(model.session, Choice(INSTRUCTIONS, OPTIONS), {}).question_plan
    prompt = plan.about(model.session, text).args.prompts[-1]
    (ending,) = prompt.endings
    labels = [f"{ending.lead}{each}" for each in OPTIONS]
    return "/completion", {
        "prompt": [*prompt.tokens, *ending.tokens],
        "grammar": gbnf_of(labels),
        "stop": labels,  # which saves the pass that would generate the end token
        "n_predict": 64,
        "cache_prompt": True,
        **GREEDY,
    }


def table_of_servers(cells: Sequence[dict[str, Any]]) -> str:
    """Return the figures of all models as a table."""
    head = ["model", "answers per second, eliza-ffi", "llama-server", "eliza-ffi / llama-server"]
    head += ["p50, p99 in ms, eliza-ffi", "llama-server"]
    rows = []
    for cell in cells:
        both = [cell["ways"][name] for name in ("ours", "llama-server")]
        rows.append(
            [
                cell["model"],
                *(number(each["a_second"]) for each in both),
                spread(cell["times_theirs"]),
                *(f"{number(each['p50_ms'])}, {number(each['p99_ms'])}" for each in both),
            ]
        )
    return markdown_table(head, rows)
