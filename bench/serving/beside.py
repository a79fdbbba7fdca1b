"""Compare eliza-ffi's server with llama-server: same file, same clients, same questions, in turns.

Decision models are asked through ``/v1/systemone``, which both servers have. Plain models are asked
through ``/v1/decisions`` in eliza-ffi, and through one completion with a grammar for each question
in llama-server. A client sends these completions one after the other, so the input is in the slot
from the second one on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.wire import question_to
from eliza_ffi.model import Model

from ..deciding.workload import (
    CODES,
    WORDS,
    DecisionSubject,
    Questionnaire,
    input_of,
    option_texts,
    subject_named,
)
from ..model import gbnf_of
from ..parts.figures import quartiles
from ..parts.machine import noting_other_programs
from ..parts.pages import spread
from ..together.llama_server import GREEDY, HOST, chosen_text, serving
from .process import running_server
from .throughput import Request, Served, figures_of, over_http

BESIDE = ("small decision model", "wide Q4_K decision model", "small 32k", "wide Q4_K 32k")
"""The models that both servers run."""

INPUT_TOKENS, N_QUESTIONS, N_OPTIONS = 100, 3, 10

N_SLOTS, TOKENS_A_SLOT = 16, 1024
"""The slots of each server, and the tokens of a slot."""

ANSWER_TOKENS = 64

SHARE_OF_WIDE = 0.1
"""The share of the inputs that wide models get, because one input takes them half a second."""

_Asking = Callable[[Sequence[str]], list[list[Request]]]
_Reading = Callable[[Sequence[Any]], list[str]]


def beside_llama_server(
    name: str, program: Path, n_clients: int, n_inputs: int, rounds: int
) -> dict[str, Any]:
    """Measure both servers in turns and return the figures of a model.

    Parameters
    ----------
    name
        A name in `BESIDE`.
    program
        llama-server.
    n_clients
        Simultaneous clients of a server.
    n_inputs
        Inputs of a round, all new to both servers. Wide models get `SHARE_OF_WIDE` of them.
    """
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
        labels = CODES if subject.is_decision_model else WORDS
        questionnaire = Questionnaire(model, N_QUESTIONS, option_texts(labels, N_OPTIONS))
        servers = {
            "ours": (ours.address, *_of_ours(questionnaire, subject)),
            "llama-server": ((HOST, theirs.port), *_of_theirs(questionnaire, subject)),
        }
        served: dict[str, list[Served]] = {name: [] for name in servers}
        said: dict[str, list[str]] = {name: [] for name in servers}
        for turn in range(-1, rounds):
            inputs = [
                input_of(model.tokenize, INPUT_TOKENS, turn * n_inputs + i)
                for i in range(n_inputs if turn >= 0 else n_clients)
            ]
            for each, (address, ask, read) in servers.items():
                one = asyncio.run(over_http(address, ask(inputs), n_clients))
                if turn >= 0:  # turn -1 is the warm-up
                    served[each].append(one)
                    said[each] += [text for answers in one.answers for text in read(answers)]
    facts["inputs"] = n_inputs * rounds
    facts["ways"] = {each: figures_of(listed) for each, listed in served.items()}
    facts["times_theirs"] = quartiles(
        [a.a_second / b.a_second for a, b in zip(*served.values(), strict=True)]
    )
    pairs = list(zip(*said.values(), strict=True))
    facts["same_answers"] = (
        sum(a == b for a, b in pairs) / len(pairs) if subject.is_decision_model else None
    )
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
                "-" if cell["same_answers"] is None else f"{cell['same_answers']:.0%}",
            ]
        )
    return markdown_table(head, rows)


def _of_ours(questionnaire: Questionnaire, subject: DecisionSubject) -> tuple[_Asking, _Reading]:
    if subject.is_decision_model:
        return _systemone(questionnaire)
    questions = [question_to(each) for each in questionnaire.questions.values()]

    def read(answers: Sequence[Any]) -> list[str]:
        return [
            max(each["probabilities"], key=lambda share: share["probability"])["value"]
            for each in answers[0]["answers"]
        ]

    return partial(
        _asking, "/v1/decisions", "input", {"model": "any", "questions": questions}
    ), read


def _of_theirs(questionnaire: Questionnaire, subject: DecisionSubject) -> tuple[_Asking, _Reading]:
    if subject.is_decision_model:
        return _systemone(questionnaire)
    more = {
        "cache_prompt": True,
        "grammar": gbnf_of(questionnaire.options),
        "n_predict": ANSWER_TOKENS,
        "stop": questionnaire.options,
        **GREEDY,
    }

    def ask(inputs: Sequence[str]) -> list[list[Request]]:
        put = map(questionnaire.put, inputs)
        return [
            [("/completion", {"prompt": prompt, **more}) for prompt in each.prompts] for each in put
        ]

    return ask, lambda answers: [chosen_text(each) for each in answers]


def _systemone(questionnaire: Questionnaire) -> tuple[_Asking, _Reading]:
    questions = questionnaire.systemone

    def read(answers: Sequence[Any]) -> list[str]:
        shares = (answers[0]["answers"][name]["probabilities"] for name in questions)
        return [max(each, key=each.__getitem__) for each in shares]

    return partial(_asking, "/v1/systemone", "state", {"questions": questions}), read


def _asking(
    path: str, field: str, more: dict[str, Any], inputs: Sequence[str]
) -> list[list[Request]]:
    """Return one request for each input, which is in a field of the body."""
    return [[(path, {**more, field: given})] for given in inputs]
