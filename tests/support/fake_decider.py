"""A fake decider, for tests of the commands that do not need the library.

Run as a program, this module is the command with the fake decider.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import table_work

from eliza_ffi import cli
from eliza_ffi.decisions.answers import Decision
from eliza_ffi.errors import ContextFullError
from eliza_ffi.ray import decider as decider_module
from eliza_ffi.tables import AnswerCounts


class FakeDecider:
    """Answers like :func:`table_work.decide`, and records the requests in `asked`.

    While `has_room` is False, the input ``"too long"`` raises ContextFullError.
    """

    def __init__(self, path: Path, seconds: float = 0.0) -> None:
        self.path = str(path)
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.session = SimpleNamespace(decisions_at_once=lambda asked: 4, model=self)
        self.is_closed = False
        self.has_room = False
        self._seconds = seconds

    def describe(self) -> dict[str, Any]:
        return {"model": {"path": self.path}}

    def decide(self, given: Any, questions: Any, **settings: Any) -> Decision:
        self.asked.append((given, settings))
        if given == "too long" and not self.has_room:
            raise ContextFullError("it does not fit")
        return table_work.decide(given, questions, self._seconds)

    def close(self) -> None:
        self.is_closed = True


@dataclass(eq=False)
class FakeTask:
    run: Callable[[], Decision]

    def cancel(self) -> None:
        pass


class FakeRowDecider:
    """Replaces the package's ``RowDecider`` for a FakeDecider."""

    at_once = 4
    prior = None

    def __init__(self, model: FakeDecider, questions: Any, settings: Any, sample: Any) -> None:
        self._model, self._questions, self._settings = model, questions, settings
        fitted = settings.get("calibration")
        self.described = {**settings, "calibration": None if fitted is None else fitted.digest}
        self.decide("a test")

    def decide(self, given: Any) -> Decision:
        return self._model.decide(given, self._questions, **self._settings)

    def task(self, given: Any) -> Any:
        return FakeTask(partial(self.decide, given))

    def resume(self, counts: AnswerCounts) -> None:
        pass

    def reasons_to_doubt(self) -> list[str]:
        return []

    def drift(self) -> None:
        return None


def work_in_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray's actors ask a FakeDecider, whose fingerprint is ``1-abc``."""
    monkeypatch.setattr(decider_module, "RowDecider", FakeRowDecider)
    monkeypatch.setattr(decider_module, "fingerprint_of", lambda model: "1-abc")


def take_place(monkeypatch: pytest.MonkeyPatch, model: FakeDecider) -> Callable[[Any, Any], Any]:
    """Make ``eliza-ffi decide`` use this model."""

    @contextmanager
    def opened(arguments: Any, n_slots: int | None = None) -> Iterator[FakeDecider]:
        yield model

    monkeypatch.setattr("eliza_ffi.cli.decide.open_model", opened)
    monkeypatch.setattr("eliza_ffi.cli.decide.RowDecider", FakeRowDecider)
    return opened


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        take_place(patch, FakeDecider(Path(sys.argv[1]), seconds=0.004))
        sys.exit(cli.main(sys.argv[2:]))
