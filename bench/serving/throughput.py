"""Measure decisions per second over HTTP, and of the same model in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eliza_ffi.model import Model

from ..parts.figures import median, percentiles
from .wire import Connection

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
"""The path and the body of a request."""


def in_process(model: Model, inputs: Sequence[str]) -> float:
    """Return the decisions per second of `Model.decide_many`."""
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
    """The answers to the requests of all clients.

    Attributes
    ----------
    a_second : float
        Inputs per second.
    seconds : list of float
        The time of each input.
    answers : list of list
        For each input the JSON answers to its requests.
    """

    a_second: float
    seconds: list[float]
    answers: list[list[Any]]


def figures_of(served: Sequence[Served]) -> dict[str, float]:
    """Return ``a_second``, the median inputs per second, and ``p50_ms`` and ``p99_ms`` of inputs.

    The percentiles are over the inputs of all rounds.
    """
    milliseconds = [1e3 * each for one in served for each in one.seconds]
    return {
        "a_second": median([one.a_second for one in served]),
        **percentiles(milliseconds, "*_ms"),
    }


async def over_http(
    address: tuple[str, int], asked: Sequence[Sequence[Request]], n_clients: int
) -> Served:
    """Send requests with several clients at once.

    Parameters
    ----------
    asked
        For each input its requests. One client sends all requests of an input, one after the other.

    Raises
    ------
    RuntimeError
        If an answer has another status than 200.
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
