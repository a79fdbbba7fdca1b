"""Compare streams of chat in eliza-ffi's server and in llama-server: same file, same clients.

All servers get the same conversations, each of which is new to them, and take turns. llama-server
runs twice: with its default, a KV cache for each slot, and with one KV cache for all slots, like
eliza-ffi's. Two things are measured: the tokens per second of several clients whose answers stream
at the same time, and the time to the first text of a request that arrives while eight other clients
stream.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.model import Model

from ..parts.figures import in_turns, median, percentiles, quartiles, ratios
from ..parts.machine import noting_other_programs
from ..parts.pages import by_method, spread
from ..parts.questions import input_of
from ..parts.workload import wide
from ..together.llama_server import GREEDY, HOST, SETTLING_SECONDS, serving
from .process import running_server
from .wire import Connection

CHAT_MODEL = wide("wide F16 32k", "phi-3")
"""A wide model with random weights, a real vocabulary and a real chat template."""

CLIENTS = (1, 4, 8, 16)
N_STREAMING = 8
"""The clients that stream answers while another request arrives."""

ARRIVING_TOKENS = 4
"""Length of the answer to a request that arrives while others stream."""

N_SLOTS, TOKENS_A_SLOT = 16, 1024
"""The slots of each server, and the tokens of a slot."""

OURS, THEIRS, ONE_CACHE = "eliza-ffi", "llama-server", "llama-server, one cache"
SERVERS = (OURS, THEIRS, ONE_CACHE)
"""Ours and theirs with default settings, and theirs with one KV cache for all slots."""


@dataclass(frozen=True)
class ChatEffort:
    """How long to measure."""

    rounds: int = 5  # the rounds in which both servers take turns
    prompt_tokens: int = 64  # length of the text of a conversation
    tokens: int = 48  # length of an answer
    long_tokens: int = 128  # length of the answers that stream while other requests arrive
    arrivals: int = 4  # the requests that arrive in a round while others stream


@dataclass
class Answer:
    """A streamed answer."""

    begin: float  # when the request was sent
    # The time and the JSON text of each event.
    events: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def seconds_to_text(self) -> float:
        """The time from the request to the first text."""
        for when, event in self.events:
            if any(each["delta"].get("content") for each in json.loads(event)["choices"]):
                return when - self.begin
        raise RuntimeError(f"expected text, got {self.events}")

    @property
    def n_tokens(self) -> int:
        """The number of tokens by the usage in the last event."""
        return int(json.loads(self.events[-1][1])["usage"]["completion_tokens"])


@dataclass(frozen=True)
class Server:
    """The address of a server, and more fields of its requests."""

    address: tuple[str, int]
    more: dict[str, Any]

    async def stream(self, text: str, n_tokens: int, answer: Answer | None = None) -> Answer:
        """Stream the answer to a message."""
        body = {
            "model": "any",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": n_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.more,
        }
        connection = await Connection.to(self.address)
        try:
            answer = answer or Answer(0.0)
            answer.begin = time.perf_counter()
            await connection.send("/v1/chat/completions", body)
            status, _ = await connection.head()
            if status != 200:
                raise RuntimeError(f"expected status 200, got {status}")
            async for event in connection.events():
                answer.events.append((time.perf_counter(), event))
        finally:
            connection.close()
        return answer


Servers = dict[str, Server]
"""The servers by name."""


async def stream_together(server: Server, texts: Sequence[str], n_tokens: int) -> list[Answer]:
    """Stream the answers to several messages at the same time."""
    return await asyncio.gather(*(server.stream(text, n_tokens) for text in texts))


def tokens_per_second(answers: Sequence[Answer]) -> float:
    """Return the tokens per second of all answers together, prompts included."""
    begin = min(each.begin for each in answers)
    end = max(each.events[-1][0] for each in answers)
    return sum(each.n_tokens for each in answers) / (end - begin)


async def arrive_while_streaming(
    server: Server,
    texts: Sequence[str],  # the first message of each of the other clients
    arriving: Sequence[str],
    n_tokens: int,  # length of the answers of the other clients
) -> tuple[list[float], float]:
    """Send requests, one after the other, while other clients stream answers without a pause.

    Returns the seconds to the first text of each request, and the tokens per second of the other
    clients.
    """
    answers = [Answer(0.0) for _ in texts]
    is_over = False

    async def keep_streaming(text: str, first: Answer) -> None:
        await server.stream(text, n_tokens, first)
        for i in count():
            if is_over:
                return
            answers.append(await server.stream(f"{text} Again: {i}.", n_tokens))

    streams = [
        asyncio.create_task(keep_streaming(*each)) for each in zip(texts, answers, strict=True)
    ]
    while not all(each.events for each in answers):
        await asyncio.sleep(0.01)
    seconds = []
    for text in arriving:
        await asyncio.sleep(random.random() * 0.2)  # at any time during a pass
        seconds.append((await server.stream(text, ARRIVING_TOKENS)).seconds_to_text)
    is_over = True
    await asyncio.gather(*streams)
    return seconds, tokens_per_second(answers)


def chat_beside_llama_server(
    name: str,  # the name of the model in the tables
    path: Path,  # The model's file. It must have a chat template.
    program: Path,  # llama-server
    clients: Sequence[int],  # the numbers of clients
    effort: ChatEffort,
) -> dict[str, Any]:
    """Measure the servers in turns and return the figures."""
    facts: dict[str, Any] = {"model": name, "effort": vars(effort)}
    with (
        noting_other_programs(facts),
        Model(path, n_slots=1, n_ctx=TOKENS_A_SLOT) as model,
        _servers(path, program, int(model.describe()["threads"])) as servers,
    ):
        places = count()

        def texts(n: int) -> list[str]:
            return [input_of(model.tokenize, effort.prompt_tokens, next(places)) for _ in range(n)]

        for server in servers.values():  # the warm-up
            asyncio.run(stream_together(server, texts(N_SLOTS), 4))
        facts["cells"] = [_streaming(servers, n, texts, effort) for n in clients]
        facts["arriving"] = _arriving(servers, texts, effort)
    return facts


Lists = defaultdict[str, list[float]]
"""The values of each server."""


def _streaming(
    servers: Servers, n_clients: int, texts: Callable[[int], list[str]], effort: ChatEffort
) -> dict[str, Any]:
    rates, first = Lists(list), Lists(list)
    for name, server, asked in _turns(servers, n_clients, texts, effort.rounds):
        answers = asyncio.run(stream_together(server, asked, effort.tokens))
        rates[name].append(tokens_per_second(answers))
        first[name].extend(1e3 * each.seconds_to_text for each in answers)
    return {
        "clients": n_clients,
        "ways": _figures(rates, first),
        "times_theirs": _times_theirs(rates),
    }


def _arriving(
    servers: Servers, texts: Callable[[int], list[str]], effort: ChatEffort
) -> dict[str, Any]:
    rates, first, middle = (Lists(list) for _ in range(3))
    n_texts = N_STREAMING + effort.arrivals
    for name, server, asked in _turns(servers, n_texts, texts, effort.rounds):
        streaming, arriving = asked[:N_STREAMING], asked[N_STREAMING:]
        seconds, rate = asyncio.run(
            arrive_while_streaming(server, streaming, arriving, effort.long_tokens)
        )
        rates[name].append(rate)
        first[name].extend(1e3 * each for each in seconds)
        middle[name].append(median(seconds))
    return {
        "streaming": N_STREAMING,
        "requests": len(first[OURS]),
        "ways": _figures(rates, first),
        "times_theirs": _times_theirs(middle),
        "rate_times_theirs": _times_theirs(rates),
    }


def _times_theirs(values: Lists) -> dict[str, tuple[float, float, float]]:
    """Return the quartiles of our server's values relative to those of each llama-server."""
    return {name: quartiles(ratios(values[OURS], values[name])) for name in (THEIRS, ONE_CACHE)}


def _figures(rates: Lists, first: Lists) -> dict[str, dict[str, float]]:
    """Return the figures of each server from its rates and its times to the first text."""
    return {
        name: {
            "tokens_per_second": median(rates[name]),
            **percentiles(first[name], "first_text_ms_*"),
        }
        for name in rates
    }


def _turns(
    servers: Servers, n: int, texts: Callable[[int], list[str]], rounds: int
) -> Iterator[tuple[str, Server, list[str]]]:
    """Yield each server with the same new texts; another server is first in each round."""
    for names in in_turns(servers, rounds):
        asked = texts(n)
        for name in names:
            time.sleep(SETTLING_SECONDS)
            yield name, servers[name], asked


@contextmanager
def _servers(path: Path, program: Path, n_threads: int) -> Iterator[Servers]:
    n_ctx = N_SLOTS * TOKENS_A_SLOT
    run = partial(serving, program, path, N_SLOTS, n_ctx, n_threads, ())
    with (
        running_server(path, "--n-slots", N_SLOTS, "--n-ctx", n_ctx) as ours,
        run(["--jinja"]) as theirs,
        run(["--jinja", "--kv-unified"]) as one_cache,
    ):
        yield {
            OURS: Server(ours.address, {}),
            THEIRS: Server((HOST, theirs.port), GREEDY),
            ONE_CACHE: Server((HOST, one_cache.port), GREEDY),
        }


def tables_of_chat(results: dict[str, Any]) -> str:
    """Return the figures as two tables."""
    names, ratio_head = SERVERS, [f"{OURS} / {THEIRS}", f"{OURS} / {ONE_CACHE}"]
    cells, arriving = results["cells"], results["arriving"]

    def row(label: str, ways: dict[str, Any], show: Callable[[Any], str], *ratio: Any) -> list[str]:
        shares = (by_method(each, (THEIRS, ONE_CACHE), spread) for each in ratio)
        return [label, *by_method(ways, names, show), *(cell for each in shares for cell in each)]

    rates = [row(str(each["clients"]), each["ways"], _rate, each["times_theirs"]) for each in cells]
    text, others = (
        "first text of another request, p50, p99 in ms",
        "tokens per second of the others",
    )
    late = [
        row(text, arriving["ways"], _times, arriving["times_theirs"]),
        row(others, arriving["ways"], _rate, arriving["rate_times_theirs"]),
    ]
    while_streaming = f"while {arriving['streaming']} other clients stream"
    return "\n\n".join(
        (
            markdown_table(["tokens per second of N clients", *names, *ratio_head], rates),
            markdown_table([while_streaming, *names, *ratio_head], late),
        )
    )


def _rate(figures: dict[str, Any]) -> str:
    return number(figures["tokens_per_second"])


def _times(figures: dict[str, Any]) -> str:
    return f"{number(figures['first_text_ms_p50'])}, {number(figures['first_text_ms_p99'])}"
