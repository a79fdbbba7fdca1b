"""Shares of answers: their intervals hold, and are narrower than from the labels alone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions import Choice, MultiLabel
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.learning.counting import right_answers, shares_of


@pytest.mark.parametrize(("share", "accuracy"), [(0.5, 0.87), (0.3, 0.85), (0.1, 0.9)])
def test_intervals_hold_in_nine_of_ten_draws(share: float, accuracy: float) -> None:
    rng = np.random.default_rng(1)
    n_rows, n_labels, n_held, n_draws, widths, alone = 1500, 200, 0, 400, 0.0, 0.0
    for _ in range(n_draws):
        y = rng.random(n_rows) < share
        is_wrong = rng.random(n_rows) > accuracy
        f = np.where(is_wrong, rng.random(n_rows) < (1 - share if share == 0.5 else 0.4), y)
        rows = rng.choice(n_rows, n_labels, replace=False).tolist()
        labels = {row: ("yes",) if y[row] else () for row in rows}
        (found,) = shares_of([("yes",) if each else () for each in f], ["yes"], labels)
        assert found.interval is not None
        low, high = found.interval
        n_held += low <= y.mean() <= high
        widths += high - low
        (plain,) = shares_of([()] * n_rows, ["yes"], labels)  # without answers of a model
        assert plain.interval is not None
        alone += plain.interval[1] - plain.interval[0]
    assert 0.87 <= n_held / n_draws <= 0.93
    assert widths < 0.75 * alone


def test_answers_of_a_dear_model_are_labels_of_a_cheap_one() -> None:
    """Intervals around the share that the dear model would find, if it read all rows."""
    rng = np.random.default_rng(5)
    n_rows, n_dear, n_draws, n_held, widths, alone = 2000, 200, 200, 0, 0.0, 0.0
    for _ in range(n_draws):
        dear = np.where(rng.random(n_rows) < 0.4, "complaint", "other")
        differs = rng.random(n_rows) < 0.1
        cheap = np.where(differs, np.where(dear == "other", "complaint", "other"), dear)
        sample = rng.choice(n_rows, n_dear, replace=False).tolist()
        labels = {row: (str(dear[row]),) for row in sample}
        answers = [(str(each),) for each in cheap]
        (found,) = shares_of(answers, ["complaint"], labels)
        (plain,) = shares_of([()] * n_rows, ["complaint"], labels)
        assert found.interval is not None and plain.interval is not None
        n_held += found.interval[0] <= (dear == "complaint").mean() <= found.interval[1]
        widths += found.interval[1] - found.interval[0]
        alone += plain.interval[1] - plain.interval[0]
    assert 0.87 <= n_held / n_draws <= 0.93
    assert widths < 0.75 * alone


def test_the_formula_is_that_of_the_regression_estimator() -> None:
    answers: Any = [("a",), ("a",), ("b",), ("b",)] * 5
    labels: Any = {i: ("a",) if i % 3 else ("b",) for i in range(12)}
    found = shares_of(answers, ["a", "b"], labels)[0]
    f = np.array([float(each == ("a",)) for each in answers])
    y = np.array([float(labels[i] == ("a",)) for i in range(12)])
    slope = np.cov(y, f[:12], bias=True)[0, 1] / f[:12].var()
    slope = min(max(slope, 0.0), 1.0)
    assert found.share == pytest.approx(slope * f.mean() + (y - slope * f[:12]).mean())
    assert (found.n_rows, found.n_labels, found.reason) == (20, 12, None)


def test_all_labels_give_the_exact_share_and_none_give_no_interval() -> None:
    answers: Any = [("a",) if i % 4 else ("b",) for i in range(40)]
    labels: Any = {i: ("b",) if i < 10 else ("a",) for i in range(40)}
    a, b = shares_of(answers, ["a", "b"], labels)
    assert a.share == pytest.approx(0.75) and b.share == pytest.approx(0.25)
    assert b.interval == pytest.approx((0.25, 0.25))
    alone = shares_of(answers, ["a", "b"])[1]
    assert alone.share == 0.25 and alone.interval is None
    assert alone.reason == "0 random labels, at least 10 are needed"


def test_groups_are_counted_apart() -> None:
    answers: Any = [("a",) if i % 2 else ("b",) for i in range(60)]
    groups = ["north" if i < 40 else "south" for i in range(60)]
    labels: Any = {i: answers[i] for i in range(0, 60, 3)}
    found = {(each.group, each.answer): each for each in shares_of(answers, ["a"], labels, groups)}
    assert found["north", "a"].interval is not None
    assert found["south", "a"].n_labels == 6 and found["south", "a"].interval is None


def test_a_model_counts_its_answers(tiny_model: Model) -> None:
    question = Choice("Which team?", ["billing", "shipping"], "team")
    texts = [f"{'I was charged' if i % 3 else 'My parcel is late'} {i}." for i in range(30)]
    labels = {i: "billing" if i % 3 else "shipping" for i in range(0, 30, 2)} | {1: None}
    found = tiny_model.count(texts, question, labels=labels)
    answers: list[Any] = tiny_model.decide_many(texts, question)
    named = [(each["team"].choice,) for each in answers]
    right: Any = {i: (label,) for i, label in labels.items() if label}
    assert [each.answer for each in found] == ["billing", "shipping"]
    assert found[0].n_labels == 15 and found[0].interval is not None
    assert found[0].share == pytest.approx(shares_of(named, ["billing"], right)[0].share, abs=0.1)
    again = asyncio.run(AsyncModel.of(tiny_model).count(texts, question, labels=labels))
    assert [each.answer for each in again] == ["billing", "shipping"]
    with pytest.raises(InvalidArgumentError, match="expected one of 'billing', 'shipping'"):
        tiny_model.count(texts, question, labels={0: "sales"})


def test_labels_of_several_fit() -> None:
    topics = MultiLabel("What is it about?", ["sport", "money"])
    assert right_answers(topics, {3: ["money"], 4: []}) == {3: ("money",), 4: ()}


def test_wrong_labels_and_groups_are_named() -> None:
    for wrong in ({7: ("a",)}, {-1: ("a",)}):
        with pytest.raises(InvalidArgumentError, match="indices of the 2 inputs"):
            shares_of([("a",), ()], ["a"], wrong)
    with pytest.raises(InvalidArgumentError, match="one for each of 2 inputs, got 1"):
        shares_of([("a",), ()], ["a"], None, ["x"])
    with pytest.raises(InvalidArgumentError, match="confidence must be"):
        shares_of([("a",)], ["a"], confidence=1)
