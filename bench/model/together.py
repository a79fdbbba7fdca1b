"""Run several streams at once, each on its own thread, and time their tokens and choices.

Everything that implements `Contender` can be measured, so other programs are measured in exactly
the same way as eliza-ffi.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.protocol import StreamStats, Tokens
from eliza_ffi.model import Model
from eliza_ffi.session.generation import GenerationRun
from eliza_ffi.session.requests import choice_of, choice_request, generate_request

T = TypeVar("T")

MOST_RESTARTS = 64


class Contender(Protocol):
    """A program that can be measured. Every call comes from its own thread."""

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Generate `n_tokens` tokens greedily and yield them as they come.

        End tokens do not stop the generation.
        """

    def choose(self, prompt: Tokens) -> str:
        """Choose a label."""


@dataclass(frozen=True)
class Written:
    """The tokens that several streams generated at once.

    Attributes
    ----------
    tokens : tuple of tuple of int
        The tokens of each stream.
    seconds : tuple of tuple of float
        The time of each token, in seconds since all streams started.
    """

    tokens: tuple[tuple[int, ...], ...]
    seconds: tuple[tuple[float, ...], ...]

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all streams together, once every stream has its first token."""
        begin = self._all_begun
        end = max(times[-1] for times in self.seconds)
        count = sum(time > begin for times in self.seconds for time in times)
        return count / (end - begin) if end > begin else 0.0

    @property
    def tokens_per_second_with_prompts(self) -> float:
        """Tokens per second of all streams together, from their start."""
        end = max(times[-1] for times in self.seconds)
        return sum(map(len, self.seconds)) / end

    @property
    def token_ms(self) -> list[float]:
        """Milliseconds between consecutive tokens of a stream, once all have their first token."""
        begin = self._all_begun
        return [
            (later - earlier) * 1e3
            for times in self.seconds
            for earlier, later in itertools.pairwise(times)
            if earlier >= begin
        ]

    @property
    def _all_begun(self) -> float:
        return max(times[0] for times in self.seconds)


@dataclass(frozen=True)
class Chosen:
    """The labels that several threads chose at once.

    Attributes
    ----------
    answers : tuple of str
        The chosen labels, in the order of the prompts.
    choice_ms : tuple of float
        Milliseconds of each choice, including its prompt.
    seconds : float
        The time from the start of the first choice to the end of the last one.
    """

    answers: tuple[str, ...]
    choice_ms: tuple[float, ...]
    seconds: float

    @property
    def choices_per_second(self) -> float:
        return len(self.answers) / self.seconds


@dataclass(frozen=True)
class Beside:
    """Consecutive choices, made while other streams generate text.

    Attributes
    ----------
    tokens_per_second : float
        Tokens per second of all generating streams together, during the choices.
    """

    chosen: Chosen
    tokens_per_second: float


class OurStreams:
    """The streams of a model.

    Parameters
    ----------
    choices
        The labels.

    Attributes
    ----------
    stats : list of StreamStats
        The stats of all generations and choices so far, if the library reports them.
    restarts : int
        How many generations the model ended early.
    """

    def __init__(self, model: Model, choices: Sequence[str]) -> None:
        self.stats: list[StreamStats] = []
        self.restarts = 0
        self._model = model
        self._choices = as_label_set(choices)

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Generate `n_tokens` tokens and yield them as they come.

        If the model ends the text early, the generation restarts with a longer prompt: the prompt,
        and one more of its own first tokens for each restart.

        Raises
        ------
        ElizaError
            If the model ends the text `MOST_RESTARTS` times.
        """
        model, left = self._model, n_tokens
        for attempt in range(MOST_RESTARTS):
            args = generate_request(model.session, [*prompt, *prompt[:attempt]], max_tokens=left)
            generation = GenerationRun(model.binding, model.session.ctx, args)
            with closing(generation.steps()) as steps:
                for step in steps:
                    left -= len(step.tokens)
                    if step.tokens:
                        yield step.tokens
            stats = generation.result().stats
            if stats is not None:
                self.stats.append(stats)
            if left <= 0:
                return
            self.restarts += 1
        raise ElizaError(f"the model ended {MOST_RESTARTS} times before {n_tokens} tokens")

    def choose(self, prompt: Tokens) -> str:
        """Return the label that greedy decoding chooses, one token at a time."""
        model = self._model
        args = choice_request(model.session, prompt, self._choices)
        generation = GenerationRun(model.binding, model.session.ctx, args)
        for _ in generation.steps():
            pass
        result = generation.result()
        if result.stats is not None:
            self.stats.append(result.stats)
        return str(choice_of(self._choices, args, result, 0.0).value)


def write_together(contender: Contender, prompts: Sequence[Tokens], n_tokens: int) -> Written:
    """Generate `n_tokens` tokens after each prompt, all prompts at once."""

    def write(prompt: Tokens) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        times: list[float] = []
        for came in contender.write(prompt, n_tokens):
            now = time.perf_counter()
            tokens += came
            times += [now] * len(came)
        return tokens, times

    begin, written = _at_once([partial(write, prompt) for prompt in prompts])
    return Written(
        tokens=tuple(tuple(tokens) for tokens, _ in written),
        seconds=tuple(tuple(each - begin for each in times) for _, times in written),
    )


def choose_together(contender: Contender, prompts: Sequence[Tokens], n_threads: int) -> Chosen:
    """Choose a label after each prompt, with `n_threads` threads that share the prompts."""
    waiting = iter(range(len(prompts)))
    answers: list[str] = [""] * len(prompts)
    choice_ms = [0.0] * len(prompts)

    def choose() -> float:
        end = 0.0
        for i in waiting:  # threads may share it: next() on a range iterator is atomic
            begin = time.perf_counter()
            answers[i] = contender.choose(prompts[i])
            end = time.perf_counter()
            choice_ms[i] = (end - begin) * 1e3
        return end

    begin, ends = _at_once([choose] * n_threads)
    return Chosen(tuple(answers), tuple(choice_ms), max(ends) - begin)


def choose_beside(
    contender: Contender, prompts: Sequence[Tokens], beside: Sequence[Tokens], n_tokens: int
) -> Beside:
    """Choose a label after each prompt, one prompt at a time, while other streams generate text.

    Parameters
    ----------
    prompts
        The prompts of the choices.
    beside
        The prompts of the generating streams. Each stream generates `n_tokens` tokens after its
        prompt, again and again.
    """
    all_write = threading.Barrier(len(beside) + 1)
    stop = threading.Event()

    def write(prompt: Tokens) -> list[float]:
        times: list[float] = []
        try:
            while not stop.is_set():
                with closing(contender.write(prompt, n_tokens)) as steps:
                    for came in steps:
                        if not times:
                            all_write.wait()
                        times += [time.perf_counter()] * len(came)
                        if stop.is_set():
                            break
        except threading.BrokenBarrierError:
            pass  # another thread failed
        except BaseException:
            all_write.abort()  # otherwise the other threads would wait for ever
            raise
        return times

    chosen: Chosen | None = None
    begin = end = 0.0
    with ThreadPoolExecutor(len(beside)) as threads:
        writing = [threads.submit(write, prompt) for prompt in beside]
        try:
            all_write.wait()
            begin = time.perf_counter()
            chosen = choose_together(contender, prompts, 1)
            end = time.perf_counter()
        except threading.BrokenBarrierError:
            pass  # a generating thread failed; its result raises the error below
        finally:
            stop.set()
        times = [each for one in writing for each in one.result()]
    if chosen is None:
        raise AssertionError("a generating thread failed without an error")
    return Beside(chosen, sum(begin <= each <= end for each in times) / (end - begin))


def _at_once(works: Sequence[Callable[[], T]]) -> tuple[float, list[T]]:
    """Start functions at the same moment, each on a thread; return the moment and the results."""
    moment: list[float] = []
    gate = threading.Barrier(len(works), action=lambda: moment.append(time.perf_counter()))

    def run(work: Callable[[], T]) -> T:
        gate.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        results = list(threads.map(run, works))
    return moment[0], results
