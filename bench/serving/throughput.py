"""Measure requests per second over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..parts.figures import median, percentiles
from .wire import Connection

Request = tuple[str, Any]
"""The path and the body of a request."""


@dataclass(frozen=True)
class Served:
    """The answers to the requests of all clients."""

    a_second: float  # inputs per second
    seconds: list[float]  # the time of each input
    answers: list[list[Any]]  # for each input the JSON answers to its requests


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
    address: tuple[str, int],
    # For each input its requests. One client sends all requests of an input, one after the other.
    asked: Sequence[Sequence[Request]],
    n_clients: int,
) -> Served:
    """Send requests with several clients at once; each answer must have the status 200."""
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
                # llama-server closes the connection after a stream without saying so.
                if headers.get("connection", "").lower() == "close" or isinstance(answer, list):
                    connection.close()
                    connection = await Connection.to(address)
            seconds[i] = time.perf_counter() - begin
        connection.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    return Served(len(asked) / (time.perf_counter() - begin), seconds, answers)
