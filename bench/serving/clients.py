"""Clients that send requests and check the answers, and clients that misbehave."""

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
from .workload import CHAT, SYSTEMONE, Asked, problem_with_chat

MISBEHAVIOURS = (
    *("disconnects", "sends slowly", "sends half a header", "sends no HTTP"),
    *("sends broken JSON", "reads slowly", "does not read answers"),
)

MAX_TRIES = 1000


@dataclass
class Outcome:
    """The results of the requests of all clients."""

    # Requests with exactly one correct answer. For an invalid request, the correct answer is an
    # error.
    held: int = 0
    refused: int = 0  # answers with status 429, after which the client sent the request again
    # Descriptions of wrong answers, and of requests without an answer.
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    # The time from a request to its answer, for requests that were answered at the first attempt.
    seconds: list[float] = field(default_factory=list)
    # The largest difference between a probability and the one computed in this process.
    farthest: float = 0.0
    # Answers whose texts or probabilities are identical to those computed in this process.
    exact: int = 0
    # How often clients misbehaved, by kind.
    misbehaved: Counter[str] = field(default_factory=Counter)


async def ask_all(
    address: tuple[str, int],
    asked: Sequence[Asked],  # the requests that clients draw from
    n_clients: int,
    n_requests: int,  # requests of each client
    rounding: float,  # the largest allowed difference of a probability
    seed: int,
) -> Outcome:
    """Run clients that send requests one after the other, and return the results."""
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
    """Send a request, again if the queue was full; return the connection for the next request."""
    body = _marked(asked, mark)
    for tries in range(MAX_TRIES):
        begin = time.perf_counter()
        if connection.reader.at_eof():  # the server closed the idle connection
            connection = await Connection.to(address)
        status, headers, answer = await connection.post(asked.path, body)
        if status == 429:
            outcome.refused += 1
            await asyncio.sleep(random.random() * min(2.0, float(headers["retry-after"])))
            continue
        if tries == 0:
            outcome.seconds.append(time.perf_counter() - begin)
        problem = _difference(asked, status, answer, mark, rounding, outcome)
        if problem:
            outcome.wrong.append(f"{mark}: {problem}")
        else:
            outcome.held += 1
        return connection
    outcome.lost.append(f"{mark}: rejected with status 429 {MAX_TRIES} times")
    return connection


def _marked(asked: Asked, mark: str) -> dict[str, Any]:
    """Return the body of a request, with unique names of its questions."""
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
    """Return what is wrong with an answer; empty = the answer is correct."""
    if status != asked.status:
        return f"expected status {asked.status}, got {status}: {json.dumps(answer)[:200]}"
    if status != 200:
        return "" if answer.keys() == {"error"} else "expected an error in OpenAI's format"
    if asked.path == CHAT:
        problem, shares = problem_with_chat(asked, answer)
        distributions = [shares] if shares else []
        if problem:
            return problem
    else:
        found = answer["answers"]
        if isinstance(found, dict):
            found = [{**each, "name": name} for name, each in found.items()]
        if not all(str(each["name"]).startswith(f"{mark} ") for each in found):
            return "the answer to another request"
        distributions = [_probabilities(each) for each in found]
    if [len(each) for each in distributions] != [len(each) for each in asked.probabilities]:
        return "wrong number of probabilities"
    pairs = [
        abs(p - q)
        for found_p, expected in zip(distributions, asked.probabilities, strict=True)
        for p, q in zip(found_p, expected, strict=True)
    ]
    farthest = max(pairs, default=0.0)
    outcome.farthest = max(outcome.farthest, farthest)
    outcome.exact += farthest == 0.0
    return f"a probability is off by {farthest:.4f}" if farthest > rounding else ""


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
    """Run a client that misbehaves until it is cancelled."""
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
    if how == "disconnects":
        writer.write(request)
        await asyncio.sleep(draw.random() * 0.3)
    elif how == "sends slowly":
        step = max(1, len(request) // 20)
        for i in range(0, len(request), step):
            writer.write(request[i : i + step])
            await writer.drain()
            await asyncio.sleep(0.05)
        await connection.answer()
    elif how == "sends half a header":
        writer.write(request[: draw.randrange(10, 40)])
        await asyncio.wait_for(connection.reader.read(), 30)  # until the server closes it
    elif how == "sends no HTTP":
        writer.write(draw.randbytes(draw.randrange(1, 4000)) + b"\r\n\r\n")
        await asyncio.wait_for(connection.reader.read(), 30)
    elif how == "sends broken JSON":
        writer.write(request_bytes(asked.path, json.dumps(asked.body).encode()[:-1]))
        status, _, _ = await connection.answer()
        expected = (422 if asked.path == SYSTEMONE else 400), 429
        if status not in expected:
            raise RuntimeError(f"broken JSON: expected status {expected}, got {status}")
    elif how == "reads slowly":
        writer.write(request)
        for _ in range(20):
            await connection.reader.read(16)
            await asyncio.sleep(0.1)
    else:
        writer.write(request * 20)
        await asyncio.sleep(1.0)
