"""Decisions that end before all orders of the options are asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions import Choice, Score
from eliza_ffi.decisions.wire import question_to
from eliza_ffi.evidence import Calibration
from eliza_ffi.evidence.calibration import QuestionCalibration
from eliza_ffi.evidence.scoring import OptionScores, QuestionScores
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.learning.fitting import _certified, _held_out, _Scored
from eliza_ffi.learning.stopping import MARGINS, stop_margin

KIND = Choice("What is it about?", ["animal", "tool", "food", "place"], "kind")
SIZE = Score("How large is it?", ["small", "medium", "large"], name="size")
INPUTS = [
    f"{frame} {name}."
    for frame in ("I saw a", "The old", "My")
    for name in ("cat", "dog", "hammer", "saw", "apple", "bread", "house", "beach")
]
N_ORDERS = 6
FITTED: Any = {"n_examples": 0, "nll": {}}
PLAIN = QuestionCalibration(question=question_to(KIND), method="none", **FITTED)


def drawn(rng: np.random.Generator, n: int) -> list[QuestionScores]:
    """Draw scores of inputs, some of which are easy, with noise that differs between the orders."""
    easy = rng.gamma(1.0, 2.0, n)
    found = []
    for strength in easy:
        logits = strength * rng.normal(size=4) + rng.normal(size=(N_ORDERS, 4))
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        found.append(QuestionScores(tuple(OptionScores(each) for each in logs)))
    return found


def test_few_answers_change_and_many_orders_are_saved() -> None:
    rng = np.random.default_rng(0)
    population = drawn(rng, 2000)
    stages = [
        np.array([PLAIN.apply(each.first(n), "constrained") for each in population])
        for n in (2, 4, 6)
    ]
    answers = [each.argmax(1) for each in stages]
    gaps = [each.max(1) - np.sort(each, 1)[:, -2] for each in stages]
    rates, asked = [], []
    for _ in range(30):
        margin = stop_margin(PLAIN, drawn(rng, 400), "constrained", 0.02, 0.9)
        assert margin is not None
        found = np.where(gaps[0] >= margin, answers[0], np.where(gaps[1] >= margin, *answers[1:]))
        rates.append(np.mean(found != answers[2]))
        asked.append(
            2 + 2 * np.mean(gaps[0] < margin) + 2 * np.mean(np.maximum(*gaps[:2]) < margin)
        )
    assert np.mean(np.array(rates) > 0.02) <= 0.2  # 0.1 is expected at most
    assert np.mean(asked) < 0.8 * N_ORDERS


def test_a_margin_needs_enough_inputs_and_orders() -> None:
    scores = drawn(np.random.default_rng(1), 400)
    assert stop_margin(PLAIN, scores[:200], "constrained", 0.01, 0.9) is None
    assert stop_margin(PLAIN, [each.first(2) for each in scores], "constrained", 0.2, 0.9) is None
    same = [QuestionScores(each.orders[:1] * 4) for each in scores]
    assert stop_margin(PLAIN, same, "constrained", 0.01, 0.9) == MARGINS[-1]


@pytest.fixture(scope="module")
def fitted(tiny_model: Model) -> Calibration:
    unlabelled, how = [(text, {}) for text in INPUTS], {"orders": N_ORDERS, "max_flips": 0.5}
    return calibrate(tiny_model, [KIND, SIZE], unlabelled, method="batch", **how)


def with_margin(calibration: Calibration, margin: float | None) -> Calibration:
    questions = tuple(replace(each, margin=margin) for each in calibration.questions)
    return replace(calibration, questions=questions)


def test_decisions_end_early(tiny_model: Model, fitted: Calibration, tmp_path: Path) -> None:
    assert fitted.questions[0].margin is not None
    assert fitted.questions[1].margin is None  # a score has two orders
    fitted.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == fitted

    def asked(margin: float | None, **more: Any) -> list[Any]:
        calibration = with_margin(fitted, margin)
        return tiny_model.decide_many(INPUTS, [KIND, SIZE], calibration=calibration, **more)

    every, none, one = asked(None), asked(1e9), asked(0.0)
    for a, b, c in zip(every, none, one, strict=True):
        assert a["kind"].distribution == pytest.approx(b["kind"].distribution, abs=0.03)
        assert a["size"].distribution == pytest.approx(c["size"].distribution, abs=0.03)
        assert b.usage.input_tokens > 1.5 * c.usage.input_tokens
    early, face = with_margin(fitted, 0.0), AsyncModel.of(tiny_model)
    again = asyncio.run(face.decide(INPUTS[0], [KIND, SIZE], calibration=early))
    assert again["kind"].distribution == pytest.approx(one[0]["kind"].distribution, abs=0.03)
    assert again.usage.input_tokens == one[0].usage.input_tokens
    pairs = zip(every, asked(fitted.questions[0].margin), strict=True)
    assert np.mean([a["kind"].choice != b["kind"].choice for a, b in pairs]) <= 0.5


def test_a_question_ends_early_whatever_the_others_do(
    tiny_model: Model, fitted: Calibration
) -> None:
    """The score has all its orders after the first request, and the other choice asks for all."""
    other = replace(KIND, name="other")
    both = [fitted.questions[0], replace(fitted.questions[0], question=question_to(other))]

    def asked(*questions: QuestionCalibration) -> list[Any]:
        calibration = replace(fitted, questions=questions)
        about = [each.asked for each in questions]
        return tiny_model.decide_many(INPUTS, about, calibration=calibration)

    early, late = (
        asked(replace(both[0], margin=margin), fitted.questions[1]) for margin in (0.0, 1e9)
    )
    mixed = asked(replace(both[0], margin=0.0), replace(both[1], margin=1e9))
    assert early[0].usage.input_tokens < 0.7 * late[0].usage.input_tokens

    def distances(name: str, decisions: list[Any]) -> list[float]:
        pairs = zip(mixed, decisions, strict=True)
        gaps = [np.subtract(a[name].distribution, b[0].distribution) for a, b in pairs]
        return [np.abs(gap).max() for gap in gaps]

    assert max(distances("kind", early)) < 0.03 < max(distances("kind", late))
    assert max(distances("other", late)) < 0.03 < max(distances("other", early))


def test_evaluate_sees_the_answers_of_decide(tiny_model: Model, fitted: Calibration) -> None:
    calibration = with_margin(replace(fitted, questions=fitted.questions[:1]), 0.0)
    decisions: list[Any] = tiny_model.decide_many(INPUTS, [KIND], calibration=calibration)
    decided = [decision["kind"].probability for decision in decisions]
    examples = [(text, {"kind": "animal"}) for text in INPUTS]
    for margin, is_same in ((0.0, True), (None, False)):
        fitted = with_margin(calibration, margin)
        report = evaluate(tiny_model, [KIND], examples, calibration=fitted)
        distance = np.abs(report.questions[0].probabilities - decided).max()
        assert bool(distance < 0.03) is is_same


def test_a_risk_is_certified_for_answers_that_end_early() -> None:
    rng = np.random.default_rng(2)
    rows = _Scored(
        "kind", 4, drawn(rng, 200), rng.integers(4, size=200), np.arange(200), "constrained"
    )
    two_orders = replace(rows, scores=[each.first(2) for each in rows.scores])

    def found(margin: float | None, scored: _Scored) -> list[Any]:
        stopping, every = replace(PLAIN, margin=margin), np.arange(200)
        held_out = _held_out(stopping, scored, every[:0], every)
        certified = _certified(stopping, held_out, 0.7, 0.9)
        return [certified.threshold, certified.sets]

    assert found(0.0, rows) == found(None, two_orders) != found(None, rows)
