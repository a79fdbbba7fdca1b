"""What an actor of a table's job does: it opens the model, and answers about chunks of rows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..decisions.fingerprint import fingerprint_of
from ..decisions.questions import Question
from ..model import Model
from .asking import Outcome, ask_together
from .decider import TEST_INPUT
from .share import open_worker_model, share_of_worker

__all__ = ["Worker", "WorkerFacts"]


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker is.

    Attributes
    ----------
    node : str
    pid : int
    n_threads : int
    version : str
        Of this package, there.
    fingerprint : str
        Of its model.
    """

    node: str
    pid: int
    n_threads: int
    version: str
    fingerprint: str


class Worker:
    """Answers the same questions about chunks of inputs.

    Nothing fails where it is made: Ray tells of that in many lines, and of what a method raises in
    the exception itself.

    Parameters
    ----------
    path, model_options
        As :func:`open_worker_model`.
    questions, settings
        As :func:`ask_together`.
    """

    def __init__(
        self,
        path: str | None,
        model_options: Mapping[str, Any],
        questions: Sequence[Question],
        settings: Mapping[str, Any],
    ) -> None:
        self._path = path
        self._model_options = model_options
        self._questions = questions
        self._settings = settings
        self._opened: Model | None = None

    def open(self) -> WorkerFacts:
        """Load the model and ask it once, which shows what would go wrong for every row."""
        model = open_worker_model(self._path, self._model_options)
        model.decide(TEST_INPUT, self._questions, **self._settings)
        self._opened = model
        share = share_of_worker()
        return WorkerFacts(
            share.node, os.getpid(), share.n_threads, __version__, fingerprint_of(model)
        )

    def decide(self, inputs: Sequence[Any]) -> tuple[list[Outcome], float]:
        """Return what became of inputs, and the seconds that it took."""
        assert self._opened is not None, "it was opened before it was given any"
        begin = time.perf_counter()
        found = ask_together(self._opened, inputs, self._questions, self._settings)
        return found, time.perf_counter() - begin
