"""Several streams at once, each on a thread of its own: what they write and choose together.

Whatever can write and choose may be measured, so that others are measured in the very same way.
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

__all__ = ["Beside", "Chosen", "Contender", "OurStreams", "Written"]
__all__ += ["choose_beside", "choose_together", "write_together"]

T = TypeVar("T")

MOST_RESTARTS = 64


class Contender(Protocol):
    """What is measured. Every call comes from a thread of its own."""

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Yield so many tokens as they come, always the most likely ones, past any end."""

    def choose(self, prompt: Tokens) -> str:
        """Return one of the answers."""


@dataclass(frozen=True)
class Written:
    """What streams wrote at once.

    Attributes
    ----------
    tokens : tuple of tuple of int
        Of each stream.
    seconds : tuple of tuple of float
        When each of them came, since all streams were let go.
    """

    tokens: tuple[tuple[int, ...], ...]
    seconds: tuple[tuple[float, ...], ...]

    @property
    def tokens_per_second(self) -> float:
        """Of all streams together, from when the last one has its first token to the end."""
        begin = self._all_begun
        end = max(times[-1] for times in self.seconds)
        count = sum(time > begin for times in self.seconds for time in times)
        return count / (end - begin) if end > begin else 0.0

    @property
    def tokens_per_second_with_prompts(self) -> float:
        """Of all streams together, from when they were let go."""
        end = max(times[-1] for times in self.seconds)
        return sum(map(len, self.seconds)) / end

    @property
    def token_ms(self) -> list[float]:
        """Milliseconds from one token of a stream to its next, once all have begun."""
        begin = self._all_begun
        return [
            (later - earlier) * 1e3
            for times in self.seconds
            for earlier, later in itertools.pairwise(times)
            if later > begin
        ]

    @property
    def _all_begun(self) -> float:
        return max(times[0] for times in self.seconds)


@dataclass(frozen=True)
class Chosen:
    """What threads chose at once.

    Attributes
    ----------
    answers : tuple of str
        In the order of the prompts.
    choice_ms : tuple of float
        Milliseconds of each, its prompt included.
    seconds : float
        From the first question to the last answer.
    """

    answers: tuple[str, ...]
    choice_ms: tuple[float, ...]
    seconds: float

    @property
    def choices_per_second(self) -> float:
        return len(self.answers) / self.seconds


@dataclass(frozen=True)
class Beside:
    """Choices one after the other while other streams write.

    Attributes
    ----------
    chosen : Chosen
    tokens_per_second : float
        Of the writing streams together, meanwhile.
    """

    chosen: Chosen
    tokens_per_second: float


class OurStreams:
    """The streams of a model.

    Parameters
    ----------
    model
    choices
        The answers there are.

    Attributes
    ----------
    stats : list of StreamStats
        Of every generation and choice so far, where the library counts.
    restarts : int
        How often the model had ended before it had written what it was to write.
    """

    def __init__(self, model: Model, choices: Sequence[str]) -> None:
        self.stats: list[StreamStats] = []
        self.restarts = 0
        self._model = model
        self._choices = as_label_set(choices)

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Yield so many tokens; where the model ends, the prompt and one token more begin anew.

        Raises
        ------
        ElizaError
            If the model ends again and again.
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
        """Return the most likely answer, token by token."""
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
    """Write so many tokens after each prompt, all at once."""

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
    """Choose after each prompt, from so many threads that take one after the other."""
    waiting = iter(range(len(prompts)))
    answers: list[str] = [""] * len(prompts)
    choice_ms = [0.0] * len(prompts)

    def choose() -> float:
        end = 0.0
        for i in waiting:  # next() on an iterator of a range is one step of the interpreter
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
    """Choose after each prompt, one after the other, while streams write after others.

    Parameters
    ----------
    contender
    prompts
        To choose after.
    beside
        To write after, each again and again, `n_tokens` tokens at a time.
    n_tokens
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
            pass  # another one failed
        except BaseException:
            all_write.abort()  # or the others would wait for ever
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
            pass  # a writer failed, and its result says how
        finally:
            stop.set()
        times = [each for one in writing for each in one.result()]
    if chosen is None:
        raise AssertionError("a writer failed and did not say how")
    return Beside(chosen, sum(begin <= each <= end for each in times) / (end - begin))


def _at_once(works: Sequence[Callable[[], T]]) -> tuple[float, list[T]]:
    """Let works go at the same moment, each on a thread; return the moment and their results."""
    moment: list[float] = []
    gate = threading.Barrier(len(works), action=lambda: moment.append(time.perf_counter()))

    def run(work: Callable[[], T]) -> T:
        gate.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        results = list(threads.map(run, works))
    return moment[0], results
