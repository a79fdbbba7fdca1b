"""Decide a table without a model. Run as a program, it can be killed by a test."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.decisions.prompts import input_text, option_count
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Question, Score
from eliza_ffi.errors import ContextFullError
from eliza_ffi.tables import TableJob, decide_rows, open_table

QUESTIONS: tuple[Question, ...] = (
    Choice("Which topic?", ["billing", "sales", True], "topic"),
    Predicate("It is urgent.", "urgent"),
    Score("How angry?", ["calm", "cross", "furious"], "anger"),
    MultiLabel("Is it about this?", ["a, b", 'c"d'], "tags"),
)

SETTINGS = {"model": "none"}


def decide(
    given: Any, questions: tuple[Question, ...] = QUESTIONS, seconds: float = 0.0
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
            of_question.append(answer_of(asked, [each / sum(weights) for each in weights]))
        answers.append(collect(question, of_question))
    return Decision(tuple(answers), DecisionUsage(0, 0, 0, 0.0))


def fail_some(given: Any) -> Decision:
    """Answer about two thirds of all inputs, always the same ones; raise for the others."""
    if zlib.crc32(str(given).encode()) % 3 == 0:
        raise ContextFullError("it does not fit")
    return decide(given)


def run(table: Path, output: Path, seconds: float = 0.0, **settings: Any) -> None:
    """Run a job, or resume it."""
    work: Callable[[Any], Decision] = lambda given: decide(given, seconds=seconds)  # noqa: E731
    job = TableJob(open_table(table), "body", QUESTIONS, output, settings=SETTINGS)
    job.run_rows(lambda rows: decide_rows(work, rows, "body", at_once=4), **settings)


if __name__ == "__main__":
    retry = "--retry-errors" in sys.argv
    run(
        *(Path(sys.argv[1]), Path(sys.argv[2]), 0.004),
        retry_errors=retry,
        progress=lambda step: print(step.new_rows, flush=True),
    )
