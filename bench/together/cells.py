"""Measure one cell of the streams' tables: a model and a number of streams, with every method."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from make_test_models import cached_model

from eliza_ffi.model import Model

from ..methods import ALONE, LOOP, OURS, SERVER
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
from ..parts.figures import median, median_ratio, percentiles
from ..parts.machine import noting_other_programs
from .batch_loop import BatchLoop
from .llama_server import LlamaServer, serving

__all__ = ["PROMPTS", "StreamEffort", "StreamModel", "measure_cell"]

PROMPTS = ("own prompts", "shared prefix")
PREFIX_TOKENS = 150
"""The prompts of choices have nothing in common, or share a prefix of this many tokens."""

SETTLING_SECONDS = 0.5
"""The pause before each method. The previous method's threads keep spinning for a moment."""

MOST_DRAWS = 4

MOST_STREAMS = 16
N_CTX = 8192

T = TypeVar("T")


@dataclass(frozen=True)
class StreamModel:
    """A model with random weights, width 1,024, 13 layers and a real vocabulary.

    Attributes
    ----------
    name : str
        Its name in the tables.
    vocab, tensor_type : str
    """

    name: str
    vocab: str
    tensor_type: str

    def path(self) -> Path:
        """Return the model's file; it is created on first use."""
        return cached_model(
            self.vocab,
            n_embd=1024,
            n_layers=13,
            n_heads=8,
            tensor_type=self.tensor_type,
            tied=True,
        )


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
        A model with as many slots as streams. llama-server has as many as well.
    n_streams, effort, loop
    server
        None = llama-server is not available.
    """

    def __init__(
        self,
        model: Model,
        n_streams: int,
        effort: StreamEffort,
        loop: BatchLoop,
        server: LlamaServer | None,
    ) -> None:
        facts = model.describe()
        self._model = model
        self._n_streams = n_streams
        self._effort = effort
        self._loop = loop
        self._server = server
        self._n_threads = int(facts["threads"])
        self._ours = OurStreams(model, CHOICES)
        self._alone = OurStreams(model, CHOICES)  # to count its passes separately
        self._prompts = RandomPrompts(model, seed=n_streams)
        self.problems: dict[str, str] = {}

    def writing(self) -> dict[str, Any]:
        """Measure all streams generating text at once."""
        n_streams, n_tokens, path = self._n_streams, self._effort.tokens, Path(self._model.path)
        ways: dict[str, Callable[[list[list[int]]], Written]] = {
            OURS: lambda prompts: write_together(self._ours, prompts, n_tokens),
            LOOP: lambda prompts: self._loop.write(path, prompts, n_tokens, self._n_threads),
        }
        if n_streams > 1:
            ways[ALONE] = lambda _: write_together(self._alone, self._drawn(1), n_tokens)
        if (server := self._server) is not None:
            ways[SERVER] = lambda prompts: write_together(server, prompts, n_tokens)

        partings = self._partings(ways)
        self._ours.stats.clear()
        rounds = self._rounds(ways, self._effort.rounds, lambda: self._drawn(n_streams))
        if n_streams == 1:
            rounds[ALONE] = rounds[OURS]
        rates = {
            name: [one.tokens_per_second for one in written] for name, written in rounds.items()
        }
        return {
            name: {
                "tokens_per_second": median(rates[name]),
                "with_prompts": median([one.tokens_per_second_with_prompts for one in written]),
                "times_the_loop": median_ratio(rates[name], rates[LOOP]),
                "times_one_alone": median_ratio(rates[name], rates[ALONE]),
                **_over_server(rates, name),
                **percentiles([ms for one in written for ms in one.token_ms], "token_ms_*"),
                "streams_that_part": len(partings.get(name, [])),
                "widest_parting": max(partings.get(name, []), default=0.0),
                "short_streams": sum(
                    len(tokens) != n_tokens for one in written for tokens in one.tokens
                ),
            }
            for name, written in rounds.items()
        }

    def _partings(
        self, ways: Mapping[str, Callable[[list[list[int]]], Written]]
    ) -> dict[str, list[float]]:
        """Return, by method, the loop's margin where a stream first generated another token.

        If the model ends the generation early after some prompts, new prompts are drawn, at most
        `MOST_DRAWS` times in all, because the methods continue differently in that case.
        """
        partings: dict[str, list[float]] = {}
        path, n_tokens = Path(self._model.path), self._effort.tokens
        for _ in range(MOST_DRAWS):
            prompts, restarts = self._drawn(self._n_streams), self._ours.restarts
            expected = self._loop.expect(path, prompts, n_tokens, self._n_threads)
            for name in (OURS, SERVER):
                written = self._try(name, ways[name], prompts) if name in ways else None
                if written is not None:
                    partings[name] = expected.partings(written.tokens)
            if self._ours.restarts == restarts:
                break
        return partings

    def choosing(self, shared: bool) -> dict[str, Any]:
        """Measure choices with one thread per stream, and with a single thread."""
        count = max(self._effort.least_choices, 2 * self._n_streams)
        prefix = self._prompts.draw(1, PREFIX_TOKENS)[0] if shared else []

        def drawn(n: int = count) -> list[list[int]]:
            return self._prompts.draw(n, CHOICE_PROMPT_TOKENS, prefix)

        ways: dict[str, Callable[[list[list[int]]], Chosen]] = {
            OURS: lambda prompts: choose_together(self._ours, prompts, self._n_streams),
            ALONE: lambda prompts: choose_together(self._alone, prompts, 1),
        }
        if self._server is not None:
            server = replace(self._server, reuse=shared)
            ways[SERVER] = lambda prompts: choose_together(server, prompts, self._n_streams)
        for name, way in ways.items():
            self._try(name, way, drawn(self._n_streams))  # brings the prefix into the slots
        rounds = self._rounds(ways, self._effort.choice_rounds, drawn)
        rates = {
            name: [one.choices_per_second for one in chosen] for name, chosen in rounds.items()
        }
        return {
            name: {
                "choices_per_second": median(rates[name]),
                "times_one_by_one": median_ratio(rates[name], rates[ALONE]),
                **_over_server(rates, name),
                **percentiles([ms for one in chosen for ms in one.choice_ms], "choice_ms_*"),
            }
            for name, chosen in rounds.items()
        }

    def beside(self) -> dict[str, Any]:
        """Measure choices of one thread while all other streams generate text."""
        if self._n_streams == 1:
            return {}
        writers, n_tokens = self._drawn(self._n_streams - 1), self._effort.tokens

        ways: dict[str, Callable[[list[list[int]]], Beside]] = {
            OURS: lambda prompts: choose_beside(self._ours, prompts, writers, n_tokens)
        }
        if self._server is not None:
            server = replace(self._server, reuse=True)  # the writers' prompts, as in eliza-ffi
            ways[SERVER] = lambda prompts: choose_beside(server, prompts, writers, n_tokens)
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

    def _drawn(self, count: int) -> list[list[int]]:
        return self._prompts.draw(count, PROMPT_TOKENS)

    def _rounds(
        self,
        ways: Mapping[str, Callable[[list[list[int]]], T]],
        n_rounds: int,
        draw: Callable[[], list[list[int]]],
    ) -> dict[str, list[T]]:
        """Run all methods in turns, each time with new prompts."""
        found: dict[str, list[T]] = {}
        names = list(ways)
        for _ in range(n_rounds):
            for name in names:
                time.sleep(SETTLING_SECONDS)
                result = self._try(name, ways[name], draw())
                if result is not None:
                    found.setdefault(name, []).append(result)
            names.append(names.pop(0))  # another method is first in the next round
        return {name: found[name] for name in ways if name in found}

    def _try(
        self, name: str, way: Callable[[list[list[int]]], T], prompts: list[list[int]]
    ) -> T | None:
        """Run a method and return its result.

        If llama-server fails, the error is noted, and the run continues without it.
        """
        if name != SERVER:
            return way(prompts)
        if name in self.problems:
            return None
        try:
            return way(prompts)
        except Exception as error:  # no error of llama-server may end the run
            self.problems[name] = f"{type(error).__name__}: {error}"
            return None


def measure_cell(
    subject: StreamModel,
    n_streams: int,
    effort: StreamEffort,
    loop: BatchLoop,
    program: Path | None,
) -> dict[str, Any]:
    """Measure one model with `n_streams` streams and return the figures of the cell."""
    figures: dict[str, Any] = {"model": subject.name, "streams": n_streams}
    path = subject.path()
    begin = time.perf_counter()
    with noting_other_programs(figures), ExitStack() as open_ones:
        model = open_ones.enter_context(Model(path, n_slots=n_streams, n_ctx=N_CTX))
        n_threads = int(model.describe()["threads"])
        server, problem = None, {}
        if program is not None:
            try:
                server = open_ones.enter_context(
                    serving(program, path, n_streams, N_CTX, n_threads, CHOICES)
                )
            except (OSError, RuntimeError) as error:
                problem = {SERVER: str(error)}
        cell = Cell(model, n_streams, effort, loop, server)
        figures["n_vocab"] = int(model.describe()["model"]["n_vocab"])
        figures["writing"] = cell.writing()
        figures["passes"] = cell.passes()
        figures["choosing"] = {
            name: cell.choosing(shared) for name, shared in zip(PROMPTS, (False, True), strict=True)
        }
        figures["beside"] = cell.beside()
        figures["problems"] = {**problem, **cell.problems}
    figures["seconds"] = time.perf_counter() - begin
    print(f"{subject.name}, {n_streams} streams: {figures['seconds']:.0f} s", file=sys.stderr)
    return figures


def _over_server(rates: Mapping[str, Sequence[float]], name: str) -> dict[str, float]:
    return {"times_the_server": median_ratio(rates[name], rates[SERVER])} if SERVER in rates else {}
