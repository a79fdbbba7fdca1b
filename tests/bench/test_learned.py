"""Methods that learn from rows answer from readings as the model itself answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.answers import learned
from bench.answers.datasets import DataSet
from bench.answers.learned import (
    FromReadings,
    open_calibrated,
    open_candidate,
    open_self_trained,
    own_model,
)
from bench.answers.methods import Subject
from eliza_ffi.decisions import Choice
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

QUESTION = Choice("What is it?", {"animal": "it lives", "thing": "it does not live"})
ROWS = [
    (f"{word} number {i}", value)
    for i in range(40)
    for word, value in (("a fox", "animal"), ("a box", "thing"))
]
DATA = DataSet("things", QUESTION, tuple(ROWS[:62]), tuple(ROWS[62:]))


@pytest.fixture
def subject(
    exact_model: Model, library: Library, encoder_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Subject:
    def open_both(_: Subject, stack: ExitStack) -> Model:
        return stack.enter_context(Model(exact_model.path, library=library, encoder=encoder_file))

    monkeypatch.setattr(learned, "open_both", open_both)
    return Subject(Path(exact_model.path), exact_model, DATA, DATA.test, 1, {})


@pytest.mark.parametrize(
    "open_learned",
    [
        partial(open_candidate, 0, "head", 40),
        partial(open_candidate, 3, "head+weights", 40),
        partial(open_calibrated, 20),
        partial(open_self_trained, 60),
        partial(open_self_trained, 0),
    ],
)
def test_readings_give_the_answers_of_the_model(
    subject: Subject, open_learned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for text, _ in DATA.test]
    with ExitStack() as stack:
        ask = open_learned(subject, stack, open_model=own_model)
        found = ask(QUESTION, texts)
        monkeypatch.setattr(learned, "ask_examples", None)  # nothing is read again
        assert (ask(QUESTION, texts) == found).all()
        assert isinstance(ask, FromReadings)
        decisions = subject.model.decide_many(texts, {"q": QUESTION}, calibration=ask.calibration)
    answers: list[Any] = [each["q"] for each in decisions]
    np.testing.assert_allclose(found, [each.distribution for each in answers], atol=1e-4)
