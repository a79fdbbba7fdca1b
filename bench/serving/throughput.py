"""How many decisions a second come through HTTP, beside the model in process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eliza_ffi.model import Model

from .wire import Connection

__all__ = ["Request", "Served", "figures_of", "in_process", "our_requests", "over_http"]

QUESTIONS: list[dict[str, Any]] = [
    {
        "type": "choice",
        "instructions": "Which team should read this?",
        "choices": [{"value": "billing"}, {"value": "support"}, {"value": "sales"}],
    },
    {"type": "predicate", "instructions": "The writer needs an answer today."},
    {
        "type": "score",
        "instructions": "How angry is the writer?",
        "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
    },
]

Request = tuple[str, Any]
"""A path, and the body that is sent there."""


def in_process(model: Model, inputs: Sequence[str]) -> float:
    """Return decisions a second of `decide_many`."""
    begin = time.perf_counter()
    model.decide_many(inputs, QUESTIONS)
    return len(inputs) / (time.perf_counter() - begin)


def our_requests(inputs: Sequence[str]) -> list[list[Request]]:
    """Return a request for each input, with the questions that `in_process` asks."""
    return [
        [("/v1/decisions", {"model": "any", "input": given, "questions": QUESTIONS})]
        for given in inputs
    ]


@dataclass(frozen=True)
class Served:
    """What came of the requests of all clients.

    Attributes
    ----------
    a_second : float
        Inputs answered a second.
    seconds : list of float
        Of each input.
    answers : list of list
        The JSON of each request, by input.
    """

    a_second: float
    seconds: list[float]
    answers: list[list[Any]]


def figures_of(served: Sequence[Served]) -> dict[str, float]:
    """Return inputs ``a_second``, the median, and of all inputs ``p50_ms`` and ``p99_ms``."""
    milliseconds = [1e3 * each for one in served for each in one.seconds]
    return {
        "a_second": float(np.median([one.a_second for one in served])),
        "p50_ms": float(np.percentile(milliseconds, 50)),
        "p99_ms": float(np.percentile(milliseconds, 99)),
    }


async def over_http(
    address: tuple[str, int], asked: Sequence[Sequence[Request]], n_clients: int
) -> Served:
    """Let so many clients send what there is to ask.

    Parameters
    ----------
    address
    asked
        For each input its requests, which one client sends one after the other.
    n_clients

    Raises
    ------
    RuntimeError
        If a request is answered with anything but 200.
    """
    waiting = list(range(len(asked)))[::-1]
    seconds = [0.0] * len(asked)
    answers: list[list[Any]] = [[] for _ in asked]

    async def client() -> None:
        connection = await Connection.to(address)
        while waiting:
            i = waiting.pop()
            begin = time.perf_counter()
            for path, body in asked[i]:
                status, headers, answer = await connection.post(path, body)
                if status != 200:
                    raise RuntimeError(f"{status}: {answer}")
                answers[i].append(answer)
                if headers.get("connection", "").lower() == "close":
                    connection.close()
                    connection = await Connection.to(address)
            seconds[i] = time.perf_counter() - begin
        connection.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    return Served(len(asked) / (time.perf_counter() - begin), seconds, answers)
