"""How many decisions a second come through HTTP, beside the model in process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from eliza_ffi.model import Model

from .wire import Connection

__all__ = ["in_process", "over_http"]

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


def in_process(model: Model, inputs: Sequence[str]) -> float:
    """Return decisions a second of `decide_many`."""
    begin = time.perf_counter()
    model.decide_many(inputs, QUESTIONS)
    return len(inputs) / (time.perf_counter() - begin)


async def over_http(
    address: tuple[str, int], inputs: Sequence[str], n_clients: int
) -> tuple[float, list[float]]:
    """Return decisions a second of so many clients, and the seconds of each."""
    waiting, seconds = list(reversed(inputs)), []

    async def client() -> None:
        connection = await Connection.to(address)
        while waiting:
            body = {"model": "any", "input": waiting.pop(), "questions": QUESTIONS}
            begin = time.perf_counter()
            status, _, answer = await connection.post("/v1/decisions", body)
            seconds.append(time.perf_counter() - begin)
            if status != 200:
                raise RuntimeError(f"{status}: {answer}")
        connection.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    return len(inputs) / (time.perf_counter() - begin), seconds
