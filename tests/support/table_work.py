"""Decide a table without a model. Run as a program, it can be killed by a test."""

from __future__ import annotations

import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.decisions.prompts import input_text, option_count
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Question, Score
from eliza_ffi.errors import ContextFullError
from eliza_ffi.tables import DecidedRow, Decider, TableRow, decide_rows, open_table
from eliza_ffi.tables import job as job_module
from eliza_ffi.tables import run as run_job
from eliza_ffi.tables.decider import input_of
from eliza_ffi.tables.learning import kept_of

QUESTIONS: tuple[Question, ...] = (
    Choice("Which topic?", ["billing", "sales", True], "topic"),
    Predicate("It is urgent.", "urgent"),
    Score("How angry?", ["calm", "cross", "furious"], "anger"),
    MultiLabel("Is it about this?", ["a, b", 'c"d'], "tags"),
)

SETTINGS: dict[str, Any] = {"model": "none"}


def decide(
    given: Any,
    questions: tuple[Question, ...] = QUESTIONS,
    seconds: float = 0.0,
    min_probability: float = 0.0,
) -> Decision:
    """Return answers computed from a checksum of the input, so they are always the same."""
    time.sleep(seconds)
    answers = []
    for place, question in enumerate(questions):
        of_question = []
        for part, asked in enumerate(expand(question)):
            n = option_count(asked)
            text = f"{place} {part} {input_text(given)}"
            weights = [1 + zlib.crc32(f"{i} {text}".encode()) % 1000 for i in range(n)]
            p = [each / sum(weights) for each in weights]
            of_question.append(answer_of(asked, p, min_probability=min_probability))
        answers.append(collect(question, of_question))
    return Decision(tuple(answers), DecisionUsage(0, 0, 0, 0.0))


def fail_some(given: Any) -> Decision:
    """Answer about two thirds of all inputs, always the same ones; raise for the others."""
    if zlib.crc32(str(given).encode()) % 3 == 0:
        raise ContextFullError("it does not fit")
    return decide(given)


@dataclass(eq=False)
class CallTask:
    """A task that calls a function."""

    run: Callable[[], Decision]

    def cancel(self) -> None:
        pass


class FunctionDecider(Decider):
    """Decides rows with a function of the input."""

    def __init__(
        self,
        work: Callable[[Any], Decision] = decide,
        column: str = "body",
        questions: Sequence[Question] = QUESTIONS,
        settings: Mapping[str, Any] = MappingProxyType({}),
        described: dict[str, Any] = SETTINGS,
        at_once: int = 4,
    ) -> None:
        self.column, self.questions, self.settings = column, questions, settings
        self.described = described
        self._work, self._at_once = work, at_once

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        def start(row: TableRow) -> Any:
            return CallTask(partial(self._work, input_of(row, self.column)))

        return decide_rows(rows, start, self._at_once)


def run(table: Path, output: Path, seconds: float = 0.0, **options: Any) -> None:
    """Run a job, or resume it."""
    decider = FunctionDecider(lambda given: decide(given, seconds=seconds))
    run_job(open_table(table), decider, output, **options)


KIND = Choice("Which kind?", ["a", "b", "c"], "kind")
N_EMBD = 300


def kind_of(text: str) -> int:
    """Return the right kind of an input."""
    return zlib.crc32(text.encode()) % 3


class LearningDecider(FunctionDecider):
    """Answers :data:`KIND` rightly about half of the time, with states that tell the kinds apart.

    With ``is_noise``, the states say nothing.
    """

    learns = (0,)

    def __init__(self, seconds: float = 0.0, is_noise: bool = False, **more: Any) -> None:
        super().__init__(self._work, questions=(KIND,), **more)
        self._seconds, self._is_noise = seconds, is_noise

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        for decided in super().decide_rows(rows):
            kept = None
            if decided.error is None:
                text = decided.row.fields[self.column]
                kept = kept_of(text, [self._log_p(text)], [self._state(text)])
            yield replace(decided, kept=kept)

    def _work(self, text: str) -> Decision:
        time.sleep(self._seconds)
        answer = answer_of(KIND, np.exp(self._log_p(text)).tolist(), None, self._least)
        return Decision((answer,), DecisionUsage(0, 0, 0, 0.0))

    @property
    def _least(self) -> float:
        return float(self.settings.get("min_probability", 0.0))

    @staticmethod
    def _log_p(text: str) -> Any:
        logits = np.random.default_rng(zlib.crc32(text.encode())).normal(size=3)
        logits[kind_of(text)] += 0.7
        return log_softmax(logits).astype(np.float32)

    def _state(self, text: str) -> Any:
        centers = np.random.default_rng(0).normal(size=(3, N_EMBD))
        noise = np.random.default_rng(zlib.crc32(b"state" + text.encode())).normal(size=N_EMBD)
        return (noise if self._is_noise else noise + centers[kind_of(text)]).astype(np.float32)


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    table, output, *flags = sys.argv[1:]
    progress: Any = lambda step: print(step.new_rows, flush=True)  # noqa: E731
    if "--die" in flags:
        job_module.LearnedRows = die  # type: ignore[assignment, misc]
    if "--learn" in flags:
        run_job(open_table(Path(table)), LearningDecider(0.004), Path(output), progress=progress)
    else:
        retry = "--retry-errors" in flags
        run(Path(table), Path(output), 0.004, retry_errors=retry, progress=progress)
