"""The compared methods: ours as a table of settings, and the peers.

To add a method of ours, add a line to `OURS`: its name, and a function that returns arguments of
`Model.decide_many`. It may use the labelled rows of the data set. Its time is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eliza_ffi.model import Model

from .datasets import DataSet, Question, Row
from .metrics import Probabilities

Ask: TypeAlias = Callable[[Question, Sequence[str]], Probabilities]
"""Answers a question about some inputs."""

DEFAULT = "default"
"""The method that the speed of all others is compared with."""


@dataclass(frozen=True)
class Subject:
    """What a method is opened with.

    Attributes
    ----------
    path : Path
        The file of the model.
    model : Model
        The model, opened by eliza-ffi.
    rows : tuple of Row
        The measured rows.
    n_threads : int
        Compute threads of the language models.
    """

    path: Path
    model: Model
    data: DataSet
    rows: tuple[Row, ...]
    n_threads: int


@dataclass(frozen=True)
class AnswerMethod:
    """A compared method.

    Attributes
    ----------
    open : callable
        Prepares the method for a model and a data set. Closing the stack frees its resources.
    n_labels : int
        How many labelled rows it learns from.
    per_option : int
        How many labelled rows of every option it learns from, for methods with examples.
    reads_options : bool
        Whether the order of the options can change its answers.
    """

    name: str
    open: Callable[[Subject, ExitStack], Ask]
    n_labels: int = 0
    per_option: int = 0
    reads_options: bool = True

    def labels_used(self, data: DataSet) -> int:
        """Return how many labelled rows of a data set the method uses."""
        return self.per_option * len(data.values) or min(self.n_labels, len(data.train))


Settings: TypeAlias = Callable[[Model, DataSet, Question], dict[str, Any]]
"""Returns the arguments of `Model.decide_many` for a question about a data set."""

OURS: dict[str, Settings] = {
    DEFAULT: lambda model, data, question: {},
    "4 orders": lambda model, data, question: {"orders": 4},
    "letters": lambda model, data, question: {"labels": "letters"},
}
"""Our methods by name."""

PER_OPTION: dict[str, int] = {}
"""How many labelled rows of every option our methods use. Others use none."""


def examples_of(data: DataSet, per_option: int) -> list[Row]:
    """Return some labelled rows of every option, the options taking turns."""
    return list(data.train[: per_option * len(data.values)])


def our_method(name: str) -> AnswerMethod:
    """Return a method in `OURS`."""

    def open_ours(subject: Subject, _: ExitStack) -> Ask:
        settings: dict[Question, dict[str, Any]] = {}

        def ask(question: Question, texts: Sequence[str]) -> Probabilities:
            if question not in settings:
                settings[question] = OURS[name](subject.model, subject.data, question)
            decisions = subject.model.decide_many(texts, {"q": question}, **settings[question])
            answers: list[Any] = [decision["q"] for decision in decisions]
            return np.array([answer.distribution for answer in answers])

        return ask

    return AnswerMethod(name, open_ours, per_option=PER_OPTION.get(name, 0))
