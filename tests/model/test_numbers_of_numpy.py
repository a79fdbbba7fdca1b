"""Numbers of numpy mean the same as numbers of Python, in every method."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model, Sampling
from eliza_ffi.decisions import Choice, question_to
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning import calibrate, evaluate

COLOUR = Choice("Which colour?", ["red", "green", "blue"], "colour")
ROWS = [(f"It is {value}, number {i}.", value) for i in range(8) for value in ("red", "green")]

WHOLE: tuple[type[Any], ...] = (np.int64, np.int32, np.uint8)
FRACTIONS: tuple[type[Any], ...] = (np.float64, np.float32, np.float16)

Call = Callable[[Model, Any], Any]


def saved(calibration: Calibration, *names: str) -> list[Any]:
    """Return fields of a calibration from the text of its file."""
    content = json.loads(calibration.to_text())["calibration"]
    return [content[name] for name in names]


OF_WHOLE: dict[str, tuple[Call, int]] = {
    "max_tokens": (lambda model, n: model.generate("a", max_tokens=n, temperature=0).text, 3),
    "seed": (lambda model, n: model.generate("a", max_tokens=4, temperature=1, seed=n).text, 7),
    "top_k": (lambda model, n: model.generate("a", max_tokens=4, temperature=1, top_k=n), 1),
    "k": (lambda model, n: list(model.rank("a", ["x", "y", "z"], k=n).labels), 2),
    "think": (lambda model, n: model.decide("a", COLOUR, think=n)[0].choice, 0),
    "orders": (lambda model, n: json.dumps(model.decide("a", COLOUR, orders=n)[0].choice), 2),
    "orders of calibrate": (
        lambda model, n: saved(calibrate(model, COLOUR, ROWS, method="none", orders=n), "orders"),
        2,
    ),
    "top": (lambda model, n: json.dumps(question_to(Choice("Which?", ["a", "b"], top=n))), 2),
    "bins": (lambda model, n: len(evaluate(model, COLOUR, ROWS[:4], bins=n).overall.bins), 3),
    "reorder": (lambda model, n: evaluate(model, COLOUR, ROWS[:2], reorder=n).orders, 2),
}

OF_FRACTIONS: dict[str, tuple[Call, float]] = {
    "temperature": (lambda model, x: model.generate("a", max_tokens=4, temperature=x).text, 0.0),
    "top_p": (lambda model, x: json.dumps(vars(Sampling(top_p=x)), default=repr), 0.5),
    "min_probability": (lambda model, x: model.decide("a", COLOUR, min_probability=x)[0].value, 1),
    "strength": (
        lambda model, x: saved(
            calibrate(model, COLOUR, ROWS, method="batch", strength=x), "model", "scoring"
        ),
        0.5,
    ),
}


@pytest.mark.parametrize("name", OF_WHOLE)
def test_whole_numbers_of_numpy_mean_the_same(tiny_model: Model, name: str) -> None:
    call, value = OF_WHOLE[name]
    expected = repr(call(tiny_model, value))
    assert [repr(call(tiny_model, kind(value))) for kind in WHOLE] == [expected] * len(WHOLE)


@pytest.mark.parametrize("name", OF_FRACTIONS)
def test_fractions_of_numpy_mean_the_same(tiny_model: Model, name: str) -> None:
    call, value = OF_FRACTIONS[name]
    found = [repr(call(tiny_model, kind(value))) for kind in FRACTIONS]
    assert found == [repr(call(tiny_model, float(value)))] * len(FRACTIONS)
