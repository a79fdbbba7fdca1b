"""Clients that ask and check what they get, and those that misbehave beside them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .wire import Connection, request_bytes
from .workload import Asked

__all__ = ["Outcome", "ask_all", "misbehave"]

MISBEHAVIOURS = ("leaves", "drips", "half a head", "no HTTP", "does not read")

MOST_TRIES = 1000


@dataclass
class Outcome:
    """What became of the requests of all clients.

    Attributes
    ----------
    held : int
        Answered once and rightly, those that had to be refused included.
    refused : int
        Answers that said to come again, which was done.
    wrong, lost : list of str
        What was answered otherwise than in process, and what got no answer.
    seconds : list of float
        From each request to its answer, of those that were held at the first try.
    farthest : float
        The largest difference of a probability from the one in process.
    exact : int
        Answers whose probabilities are those in process, to the last bit.
    misbehaved : Counter
        What was done beside them, and how often.
    """

    held: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    farthest: float = 0.0
    exact: int = 0
    misbehaved: Counter[str] = field(default_factory=Counter)


async def ask_all(
    address: tuple[str, int],
    asked: Sequence[Asked],
    n_clients: int,
    n_requests: int,
    rounding: float,
    seed: int,
) -> Outcome:
    """Let clients ask, each one request after the other, and return what became of them."""
    outcome = Outcome()
    clients = [
        _client(address, asked, n_requests, rounding, outcome, f"{seed}-{i}")
        for i in range(n_clients)
    ]
    await asyncio.gather(*clients)
    return outcome


async def _client(
    address: tuple[str, int],
    asked: Sequence[Asked],
    n_requests: int,
    rounding: float,
    outcome: Outcome,
    name: str,
) -> None:
    draw = random.Random(name)
    connection = await Connection.to(address)
    for i in range(n_requests):
        mark = f"{name}-{i}"
        each = draw.choice(asked)
        try:
            connection = await _ask_until_answered(
                connection, address, each, mark, rounding, outcome
            )
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
            outcome.lost.append(f"{mark}: {error!r}")
            connection.close()
            connection = await Connection.to(address)
    connection.close()


async def _ask_until_answered(
    connection: Connection,
    address: tuple[str, int],
    asked: Asked,
    mark: str,
    rounding: float,
    outcome: Outcome,
) -> Connection:
    """Ask, and again where the queue was full; return the connection for the next request."""
    body = _marked(asked, mark)
    for tries in range(MOST_TRIES):
        begin = time.perf_counter()
        if connection.reader.at_eof():  # it was idle for too long: no request was sent on it
            connection = await Connection.to(address)
        status, headers, answer = await connection.post(asked.path, body)
        if status == 429:
            outcome.refused += 1
            await asyncio.sleep(random.random() * min(2.0, float(headers["retry-after"])))
            continue
        if tries == 0:
            outcome.seconds.append(time.perf_counter() - begin)
        said = _difference(asked, status, answer, mark, rounding, outcome)
        if said:
            outcome.wrong.append(f"{mark}: {said}")
        else:
            outcome.held += 1
        return connection
    outcome.lost.append(f"{mark}: refused {MOST_TRIES} times")
    return connection


def _marked(asked: Asked, mark: str) -> dict[str, Any]:
    """Return a request whose questions have names that no other request's have."""
    questions = asked.body.get("questions")
    if isinstance(questions, dict):
        return {**asked.body, "questions": {f"{mark} {k}": v for k, v in questions.items()}}
    if isinstance(questions, list):
        named = [{**question, "name": f"{mark} {i}"} for i, question in enumerate(questions)]
        return {**asked.body, "questions": named}
    return asked.body


def _difference(
    asked: Asked, status: int, answer: Any, mark: str, rounding: float, outcome: Outcome
) -> str:
    """Return what is wrong with an answer; empty if nothing is."""
    if status != asked.status:
        return f"{status} instead of {asked.status}: {json.dumps(answer)[:200]}"
    if status != 200:
        return "" if answer.keys() == {"error"} else "no error in OpenAI's form"
    found = answer["answers"]
    if isinstance(found, dict):
        found = [{**each, "name": name} for name, each in found.items()]
    if not all(str(each["name"]).startswith(f"{mark} ") for each in found):
        return "somebody else's answer"
    distributions = [_probabilities(each) for each in found]
    if [len(each) for each in distributions] != [len(each) for each in asked.probabilities]:
        return "another number of probabilities"
    pairs = [
        abs(p - q)
        for found_p, expected in zip(distributions, asked.probabilities, strict=True)
        for p, q in zip(found_p, expected, strict=True)
    ]
    outcome.farthest = max(outcome.farthest, *pairs)
    outcome.exact += max(pairs) == 0.0
    return f"off by {max(pairs):.4f}" if max(pairs) > rounding else ""


def _probabilities(answer: dict[str, Any]) -> list[float]:
    for name in ("probability", "noul"):
        if name in answer:
            return [answer[name], 1.0 - answer[name]]
    shares = answer["probabilities"]
    if isinstance(shares, dict):
        return list(shares.values())
    return [each["probability"] for each in shares]


async def misbehave(
    address: tuple[str, int], asked: Sequence[Asked], outcome: Outcome, seed: str
) -> None:
    """Be a client as none should be, until cancelled."""
    draw = random.Random(seed)
    while True:
        how = draw.choice(MISBEHAVIOURS)
        each = draw.choice(asked)
        with suppress(OSError, asyncio.IncompleteReadError):
            connection = await Connection.to(address)
            try:
                await _misbehave_once(connection, each, how, draw)
                outcome.misbehaved[how] += 1
            finally:
                connection.close()
        await asyncio.sleep(0.05)


async def _misbehave_once(
    connection: Connection, asked: Asked, how: str, draw: random.Random
) -> None:
    writer = connection.writer
    request = request_bytes(asked.path, json.dumps(asked.body).encode())
    if how == "leaves":
        writer.write(request)
        await asyncio.sleep(draw.random() * 0.3)
    elif how == "drips":
        step = max(1, len(request) // 20)
        for i in range(0, len(request), step):
            writer.write(request[i : i + step])
            await writer.drain()
            await asyncio.sleep(0.05)
        await connection.answer()
    elif how == "half a head":
        writer.write(request[: draw.randrange(10, 40)])
        await asyncio.wait_for(connection.reader.read(), 30)  # until the server has had enough
    elif how == "no HTTP":
        writer.write(draw.randbytes(draw.randrange(1, 4000)) + b"\r\n\r\n")
        await asyncio.wait_for(connection.reader.read(), 30)
    else:
        writer.write(request * 20)
        await asyncio.sleep(1.0)
