"""A fake decider, for tests of the commands that do not need the library.

Run as a program, this module is the command with the fake decider.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import table_work

from eliza_ffi import cli
from eliza_ffi.decisions.answers import Decision
from eliza_ffi.errors import ContextFullError
from eliza_ffi.ray import table as table_module


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

    @property
    def fingerprint(self) -> str:
        path = Path(self.path)
        return str(zlib.crc32(path.read_bytes())) if path.exists() else "none"

    def decide(self, given: Any, questions: Any, **settings: Any) -> Decision:
        self.asked.append((given, settings))
        if given == "too long" and not self.has_room:
            raise ContextFullError("it does not fit")
        return table_work.decide(given, questions, self._seconds)

    def close(self) -> None:
        self.is_closed = True


class FakeRowDecider(table_work.FunctionDecider):
    """Replaces the package's ``RowDecider`` for a FakeDecider."""

    prior = None
    never_certified = ()

    def __init__(
        self,
        model: FakeDecider,
        column: str,
        questions: Any,
        settings: Any,
        sample: Any,
        learn: bool = False,
    ) -> None:
        fitted = settings.get("calibration")
        digest = None if fitted is None else fitted.digest
        described = {"model": model.fingerprint, **settings, "calibration": digest}
        described["learn"] = []
        work = lambda given: model.decide(given, questions, **settings)  # noqa: E731
        super().__init__(work, column, questions, settings, described)
        work("a test")


def work_in_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray's actors ask a FakeDecider."""
    monkeypatch.setattr(table_module, "RowDecider", FakeRowDecider)


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
