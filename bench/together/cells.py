"""Measure one cell of the streams' tables: a model and a number of streams, with every method."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from eliza_ffi.model import Model

from ..methods import ALONE, LOOP, LOOP_EQUAL, OURS, SERVER, SERVER_EQUAL
from ..model.streams import (
    CHOICE_PROMPT_TOKENS,
    CHOICES,
    PROMPT_TOKENS,
    RandomPrompts,
    sharing,
)
from ..model.together import (
    Beside,
    Chosen,
    OurStreams,
    Written,
    choose_beside,
    choose_together,
    write_together,
)
from ..parts.figures import attempt, in_turns, median, percentiles, quartiles, ratios
from ..parts.machine import noting_other_programs, one_busy_process
from ..parts.workload import Subject
from .batch_loop import DEFAULTS, EQUAL, BatchLoop, Expected
from .llama_server import LlamaServer, serving

PROMPTS = ("own prompts", "shared prefix")
PREFIX_TOKENS = 150
"""The prompts of choices have nothing in common, or share a prefix of this many tokens."""

SETTLING_SECONDS = 0.5
"""The pause before each method. The previous method's threads keep spinning for a moment."""

MOST_DRAWS = 4

MOST_STREAMS = 16
N_CTX = 8192

SERVERS = {
    SERVER: (),
    SERVER_EQUAL: (
        *("--kv-unified", "--batch-size", "512", "--ubatch-size", "512"),
        *("--poll", "1", "--poll-batch", "1"),
    ),
}
"""The arguments of llama-server with its defaults and with eliza-ffi's settings."""

Prompts = list[list[int]]
T = TypeVar("T")


@dataclass(frozen=True)
class StreamEffort:
    """How long to measure.

    Attributes
    ----------
    tokens : int
        Tokens that every stream generates in a round.
    rounds, choice_rounds : int
        Rounds of generating text, and of choices.
    least_choices : int
        The fewest choices of a round. If twice the number of streams is more, that many are made.
    choices_beside : int
        Choices of a round while other streams generate text.
    """

    tokens: int
    rounds: int
    choice_rounds: int
    least_choices: int
    choices_beside: int


class Cell:
    """The measurements of one model and one number of streams.

    Parameters
    ----------
    model
        A model with as many slots as streams. Each llama-server has as many as well.
    servers
        The running servers, by label.
    prompt_tokens
        Length of the prompts before generated text.
    equal_loop
        Whether to measure the batch loop also with eliza-ffi's settings.
    """

    def __init__(
        self,
        model: Model,
        n_streams: int,
        effort: StreamEffort,
        loop: BatchLoop,
        servers: Mapping[str, LlamaServer],
        prompt_tokens: int = PROMPT_TOKENS,
        equal_loop: bool = True,
    ) -> None:
        self._n_streams = n_streams
        self._prompt_tokens = prompt_tokens
        self._effort = effort
        self._servers = servers
        self._ours = OurStreams(model, CHOICES)
        self._alone = OurStreams(model, CHOICES)  # to count its passes separately
        self._prompts = RandomPrompts(model, seed=n_streams)
        path, n_tokens = Path(model.path), effort.tokens
        n_threads = int(model.describe()["threads"])
        default, equal = (replace(loop, settings=each) for each in (DEFAULTS, EQUAL))
        self._expect: Callable[[Prompts], Expected] = lambda prompts: equal.expect(
            path, prompts, n_tokens, n_threads
        )
        self._writers: dict[str, Callable[[Prompts], Written]] = {
            OURS: partial(write_together, self._ours, n_tokens=n_tokens),
            LOOP: lambda prompts: default.write(path, prompts, n_tokens, n_threads),
        }
        if equal_loop:
            self._writers[LOOP_EQUAL] = lambda prompts: equal.write(
                path, prompts, n_tokens, n_threads
            )
        for name, server in servers.items():
            self._writers[name] = partial(write_together, server, n_tokens=n_tokens)
        self.problems: dict[str, str] = {}

    def writing(self) -> dict[str, Any]:
        """Measure all streams generating text at once.

        The first round of the first call has the first requests of the model and of the servers.
        """
        ways = dict(self._writers)
        if self._n_streams > 1:
            ways[ALONE] = lambda _: write_together(self._alone, self._drawn(1), self._effort.tokens)
        rounds = self._rounds(ways, self._effort.rounds, lambda: self._drawn(self._n_streams))
        if self._n_streams == 1:
            rounds[ALONE] = rounds[OURS]
        rates = {
            name: [one.tokens_per_second for one in written] for name, written in rounds.items()
        }
        with_prompts = {
            name: [one.tokens_per_second_with_prompts for one in written]
            for name, written in rounds.items()
        }
        gaps = {
            name: percentiles([ms for one in written for ms in one.token_ms], "*")
            for name, written in rounds.items()
        }
        return {
            name: {
                "tokens_per_second": quartiles(rates[name]),
                "with_prompts": median(with_prompts[name]),
                **_first_round(with_prompts[name]),
                "times_theirs": quartiles(ratios(rates[OURS], rates[name])),
                **{f"token_ms_{each}": ms for each, ms in gaps[name].items()},
                **{
                    f"times_the_loop_{each}": ms / gaps[LOOP][each]
                    for each, ms in gaps[name].items()
                },
                "short_streams": sum(
                    len(tokens) != self._effort.tokens for one in written for tokens in one.tokens
                ),
            }
            for name, written in rounds.items()
        }

    def partings(self) -> dict[str, Any]:
        """Compare the tokens of all methods with the tokens of the batch loop with our settings.

        If the model ends the generation early after some prompts, new prompts are drawn, at most
        `MOST_DRAWS` times in all, because the methods continue differently in that case.

        Returns
        -------
        dict
            For each method, how many streams differ, and the loop's largest margin at the first
            different token of a stream.
        """
        partings: dict[str, Any] = {}
        for _ in range(MOST_DRAWS):
            prompts, restarts = self._drawn(self._n_streams), self._ours.restarts
            expected = self._expect(prompts)
            for name, way in self._writers.items():
                written = self._try(name, way, prompts) if name != LOOP_EQUAL else None
                if written is not None:
                    margins = expected.partings(written.tokens)
                    partings[name] = {"streams": len(margins), "widest": max(margins, default=0.0)}
            if self._ours.restarts == restarts:
                break
        return partings

    def choosing(self, shared: bool) -> dict[str, Any]:
        """Measure choices with one thread per stream, and with a single thread."""
        count = max(self._effort.least_choices, 2 * self._n_streams)
        prefix = self._prompts.draw(1, PREFIX_TOKENS)[0] if shared else []

        def drawn(n: int = count) -> Prompts:
            return self._prompts.draw(n, CHOICE_PROMPT_TOKENS, prefix)

        ways: dict[str, Callable[[Prompts], Chosen]] = {
            OURS: partial(choose_together, self._ours, n_threads=self._n_streams),
            ALONE: partial(choose_together, self._alone, n_threads=1),
        }
        for name, server in self._servers.items():
            contender = replace(server, reuse=shared)
            ways[name] = partial(choose_together, contender, n_threads=self._n_streams)
        for name, way in ways.items():
            self._try(name, way, drawn(self._n_streams))  # brings the prefix into the slots
        rounds = self._rounds(ways, self._effort.choice_rounds, drawn)
        rates = {
            name: [one.choices_per_second for one in chosen] for name, chosen in rounds.items()
        }
        return {
            name: {
                "choices_per_second": quartiles(rates[name]),
                "times_theirs": quartiles(ratios(rates[OURS], rates[name])),
                **percentiles([ms for one in chosen for ms in one.choice_ms], "choice_ms_*"),
            }
            for name, chosen in rounds.items()
        }

    def beside(self) -> dict[str, Any]:
        """Measure choices of one thread while all other streams generate text."""
        if self._n_streams == 1:
            return {}
        writers, n_tokens = self._drawn(self._n_streams - 1), self._effort.tokens

        beside: dict[str, Any] = {"beside": writers, "n_tokens": n_tokens}
        ways: dict[str, Callable[[Prompts], Beside]] = {
            OURS: partial(choose_beside, self._ours, **beside)
        }
        for name, server in self._servers.items():
            contender = replace(server, reuse=True)  # the writers' prompts, as in eliza-ffi
            ways[name] = partial(choose_beside, contender, **beside)
        rounds = self._rounds(
            ways,
            self._effort.choice_rounds,
            lambda: self._prompts.draw(self._effort.choices_beside, CHOICE_PROMPT_TOKENS),
        )
        return {
            name: {
                **percentiles([ms for one in made for ms in one.chosen.choice_ms], "choice_ms_*"),
                "tokens_per_second": median([one.tokens_per_second for one in made]),
            }
            for name, made in rounds.items()
        }

    def passes(self) -> dict[str, Any]:
        """Return how eliza-ffi's passes were shared, if the library counts this, and restarts."""
        restarts = self._ours.restarts + self._alone.restarts
        return {"restarts": restarts, **sharing(self._ours.stats)}

    def _drawn(self, count: int) -> Prompts:
        return self._prompts.draw(count, self._prompt_tokens)

    def _rounds(
        self,
        ways: Mapping[str, Callable[[Prompts], T]],
        n_rounds: int,
        draw: Callable[[], Prompts],
    ) -> dict[str, list[T]]:
        """Run all methods in turns, each time with new prompts."""
        found: dict[str, list[T]] = {name: [] for name in ways}
        for name in itertools.chain.from_iterable(in_turns(ways, n_rounds)):
            time.sleep(SETTLING_SECONDS)
            result = self._try(name, ways[name], draw())
            if result is not None:
                found[name].append(result)
        return {name: listed for name, listed in found.items() if listed}

    def _try(self, name: str, way: Callable[[Prompts], T], prompts: Prompts) -> T | None:
        """Run a method and return its result.

        If a server fails, the error is noted, and the run continues without it.
        """
        is_ours = name not in self._servers
        return way(prompts) if is_ours else attempt(self.problems, name, way, prompts)


def measure_cell(
    subject: Subject,
    n_streams: int,
    effort: StreamEffort,
    loop: BatchLoop,
    program: Path | None,
    busy: bool = False,
    prompt_tokens: int = PROMPT_TOKENS,
    text_only: bool = False,
) -> dict[str, Any]:
    """Measure one model with `n_streams` streams and return the figures of the cell.

    Choices are measured only without a busy process and with prompts of the usual length, because
    choices have prompts of their own. Without choices, the keys ``choosing`` and ``beside`` are
    missing.

    Parameters
    ----------
    program
        llama-server; None = it is not available.
    busy
        Whether one other busy process runs all the time. The batch loop and llama-server are then
        measured only with their default settings.
    prompt_tokens
        Length of the prompts before generated text.
    text_only
        Whether to measure only text.
    """
    figures: dict[str, Any] = {"model": subject.name, "streams": n_streams}
    with_choices = not (busy or text_only) and prompt_tokens == PROMPT_TOKENS
    path = subject.path()
    name = f"{subject.name}, {n_streams} streams"
    with noting_other_programs(figures, name), ExitStack() as open_ones:
        model = open_ones.enter_context(Model(path, n_slots=n_streams, n_ctx=N_CTX))
        n_threads = int(model.describe()["threads"])
        servers: dict[str, LlamaServer] = {}
        problems: dict[str, str] = {}
        for name, more in SERVERS.items():
            if program is None or (busy and name != SERVER):
                break
            starting = serving(program, path, n_streams, N_CTX, n_threads, CHOICES, more)
            server = attempt(problems, name, open_ones.enter_context, starting)
            if server is not None:
                servers[name] = server
        open_ones.enter_context(one_busy_process() if busy else nullcontext())
        cell = Cell(model, n_streams, effort, loop, servers, prompt_tokens, equal_loop=not busy)
        figures["n_vocab"] = int(model.describe()["model"]["n_vocab"])
        figures["writing"] = cell.writing()
        figures["passes"] = cell.passes()
        figures["partings"] = cell.partings()
        if with_choices:
            shared = zip(PROMPTS, (False, True), strict=True)
            figures["choosing"] = {name: cell.choosing(is_shared) for name, is_shared in shared}
            figures["beside"] = cell.beside()
        figures["problems"] = {**problems, **cell.problems}
    return figures


def _first_round(rates: Sequence[float]) -> dict[str, float]:
    """Return the rate of the first round relative to the median of the later rounds, if any."""
    return {"first_round": rates[0] / median(rates[1:])} if len(rates) > 1 else {}
