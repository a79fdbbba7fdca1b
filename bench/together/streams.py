"""Run several streams at once, each on its own thread, and time their tokens and choices.

Everything that implements `Contender` can be measured, so other programs are measured in exactly
the same way as eliza-ffi.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.protocol import StreamStep, Tokens
from eliza_ffi.model import Model
from eliza_ffi.session.generation import Generation
from eliza_ffi.session.requests import Request, choice_request, generate_request
from eliza_ffi.session.results import choice_of
from eliza_ffi.session.run import Run

T = TypeVar("T")

CHOICES = ("SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE", "IGNORE")
"""Labels. Some differ from the others in their first token, some in a later one."""

MAX_RESTARTS = 64


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
    """The tokens that several streams generated at once."""

    tokens: tuple[tuple[int, ...], ...]  # the tokens of each stream
    # The time of each token, in seconds since all streams started.
    seconds: tuple[tuple[float, ...], ...]

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all streams together, once every stream has its first token."""
        begin = self._all_begun
        end = max(times[-1] for times in self.seconds)
        count = sum(time > begin for times in self.seconds for time in times)
        return count / (end - begin) if end > begin else 0.0

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
    """The labels that several threads chose at once."""

    answers: tuple[str, ...]  # the chosen labels, in the order of the prompts
    choice_ms: tuple[float, ...]  # milliseconds of each choice, including its prompt
    seconds: float  # the time from the start of the first choice to the end of the last one

    @property
    def choices_per_second(self) -> float:
        return len(self.answers) / self.seconds


class OurStreams:
    """The streams of a model."""

    def __init__(self, model: Model, choices: Sequence[str]) -> None:
        self._model = model
        self._choices = as_label_set(choices)

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        """Generate `n_tokens` tokens and yield them as they come.

        If the model ends the text early, the generation restarts with a longer prompt: the prompt,
        and one more of its own first tokens for each restart.
        """
        model, left = self._model, n_tokens
        for attempt in range(MAX_RESTARTS):
            args = generate_request(model.session, [*prompt, *prompt[:attempt]], max_tokens=left)
            run = Run(model.session, partial(_generated, args))
            with closing(run.steps()) as steps:
                for step in steps:
                    if isinstance(step, StreamStep) and step.tokens:
                        left -= len(step.tokens)
                        yield step.tokens
            if left <= 0:
                return
        raise ElizaError(f"the model ended {MAX_RESTARTS} times before {n_tokens} tokens")

    def choose(self, prompt: Tokens) -> str:
        """Return the label that greedy decoding chooses, one token at a time."""
        model = self._model
        args = choice_request(model.session, prompt, self._choices)
        *_, result = Run(model.session, partial(_generated, args)).steps()
        assert isinstance(result, Generation)
        return str(choice_of(self._choices, args, result, 0.0).value)


def _generated(args: Request, run: Run[Any]) -> Generator[StreamStep | Generation, None, None]:
    return Generation(run, args).steps()


class RandomPrompts:
    """Prompts of random tokens, which are in no cache. None of them is a control token."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)
        self._n_vocab = int(model.describe()["model"]["n_vocab"])
        self._begin = model.tokenize("", add_special=True)

    def draw(self, count: int, length: int) -> list[list[int]]:
        """Return `count` prompts of `length` tokens, with the model's start token if it has one."""
        return [self._drawn(length) for _ in range(count)]

    def _drawn(self, length: int) -> list[int]:
        prompt = [*self._begin]
        while len(prompt) < length:
            token = self._random.randrange(self._n_vocab)
            if self._model.detokenize([token]):
                prompt.append(token)
        return prompt


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
