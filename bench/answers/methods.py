"""The compared methods: ours as a table of settings, and the peers.

To add a method of ours, add a line to `_ours`: its name, and a function that returns arguments of
`Model.decide_many`. It may use the labelled rows of the data set. Its time is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eliza_ffi.model import Model

from .datasets import DataSet, Question, Row
from .learned import open_calibrated
from .metrics import Probabilities

Ask: TypeAlias = Callable[[Question, Sequence[str]], Probabilities]
"""Answers a question about some inputs."""

LABELS = (60, 150, 300)
"""The numbers of labelled rows that methods learn from."""

DEFAULT = "default"
"""The method that the speed of all others is compared with."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What a method is opened with."""

    path: Path  # the file of the model
    model: Model  # the model, opened by eliza-ffi
    data: DataSet
    rows: tuple[Row, ...]  # the measured rows
    n_threads: int  # compute threads of the language models


@dataclass(frozen=True)
class AnswerMethod:
    """A compared method."""

    name: str
    # Prepares the method for a model and a data set. Closing the stack frees its resources.
    open: Callable[[Subject, ExitStack], Ask]
    n_labels: int = 0  # how many labelled rows it learns from
    # How many labelled rows of every option it learns from, for methods with examples.
    per_option: int = 0
    reads_options: bool = True  # whether the order of the options can change its answers
    most_rows: int = 100_000  # the most rows that it answers, for slow methods
    # Whether its time is reported. Methods that share what the model has read have none.
    is_timed: bool = True

    def labels_used(self, data: DataSet) -> int:
        """Return how many labelled rows of a data set the method uses."""
        return self.per_option * len(data.values) or min(self.n_labels, len(data.train))


Settings: TypeAlias = Callable[[Model, DataSet, Question], dict[str, Any]]
"""Returns the arguments of `Model.decide_many` for a question about a data set."""


def our_method(name: str, settings: Settings, per_option: int = 0) -> AnswerMethod:
    """Return a method of ours, whose settings are computed once for each question."""

    def open_ours(subject: Subject, _: ExitStack) -> Ask:
        known: dict[Question, dict[str, Any]] = {}

        def ask(question: Question, texts: Sequence[str]) -> Probabilities:
            if question not in known:
                known[question] = settings(subject.model, subject.data, question)
            decisions = subject.model.decide_many(texts, {"q": question}, **known[question])
            answers: list[Any] = [decision["q"] for decision in decisions]
            return np.array([answer.distribution for answer in answers])

        return ask

    return AnswerMethod(name, open_ours, per_option=per_option)


def fixed(**settings: Any) -> Settings:
    """Return settings that are the same for all data sets."""
    return lambda model, data, question: settings


def with_examples(per_option: int, **more: Any) -> Settings:
    """Return settings with some labelled rows of every option, the options taking turns."""
    return lambda model, data, question: {
        "examples": data.train[: per_option * len(data.values)],
        **more,
    }


def learned_methods(
    name: str, open_learned: Callable[[int, Subject, ExitStack], Ask]
) -> list[AnswerMethod]:
    """Return a method of :mod:`.learned` for each number of labels."""
    return [
        AnswerMethod(
            f"{name}, {n} labels", partial(open_learned, n), n, reads_options=False, is_timed=False
        )
        for n in LABELS
    ]


def _ours() -> tuple[AnswerMethod, ...]:
    chat, plain = {"prompt_format": "chat"}, {"prompt_format": "plain", "prior": "none"}
    input_first, question_first = (
        {"prompt_order": f"{each}-first"} for each in ("input", "question")
    )
    return (
        our_method(DEFAULT, fixed()),
        our_method("chat, input first", fixed(**chat, **input_first)),
        our_method("chat, question first", fixed(**chat, **question_first)),
        our_method("plain, input first", fixed(**plain, **input_first)),
        our_method("plain, question first", fixed(**plain, **question_first)),
        our_method("letters", fixed(answer_style="letters")),
        our_method("4 orders", fixed(orders=4)),
        our_method("prior of inputs", fixed(prior="inputs")),
        our_method("1 example", with_examples(1), per_option=1),
        our_method("2 examples", with_examples(2), per_option=2),
        our_method("1 example, prior of inputs", with_examples(1, prior="inputs"), per_option=1),
        *learned_methods("calibrate", open_calibrated),
    )


OURS = _ours()
"""Our methods, in the order of the tables. Examples are counted for each option."""
