"""Warnings about prompts that seem not to work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions import evaluate
from eliza_ffi.decisions.asking import N_MASSES
from eliza_ffi.decisions.doubts import (
    LEAST_MASS,
    LEAST_ROWS,
    reason_to_doubt_accuracy,
    reasons_to_doubt,
)
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score

TEAM = Choice("Which team should read this?", ["billing", "sales"], "team")
ANGRY = Predicate("The writer is angry.", "angry")
QUESTIONS = (TEAM, ANGRY, Score("How urgent is it?", ["can wait", "now"], "urgency"))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    for record in caplog.records:
        assert (record.name, record.levelno) == ("eliza_ffi", logging.WARNING)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("answers", "is_doubted"),
    [
        ({"a": LEAST_ROWS - 1}, False),
        ({"a": LEAST_ROWS}, True),
        ({"a": 90, "b": 10}, False),
        ({"a": 91, "b": 9}, True),
        ({"b": 1, "a": 19}, True),
        ({}, False),
    ],
)
def test_one_answer_is_doubted_above_nine_tenths(answers: dict[str, int], is_doubted: bool) -> None:
    reasons = reasons_to_doubt("team", answers, [])
    assert len(reasons) == is_doubted
    if is_doubted:
        n = sum(answers.values())
        assert reasons[0].startswith(f"team: {answers['a']} of {n} answers are 'a'; unless that is")
        assert "measure with evaluate" in reasons[0]


@pytest.mark.parametrize(
    ("masses", "is_doubted"),
    [
        ([], False),
        ([LEAST_MASS], False),
        ([LEAST_MASS - 1e-6], True),
        ([0.0, 2 * LEAST_MASS], False),
        ([0.0, 1.9 * LEAST_MASS], True),
    ],
)
def test_a_mean_allowed_probability_below_one_percent_is_doubted(
    masses: list[float], is_doubted: bool
) -> None:
    reasons = reasons_to_doubt("team", {"a": 1}, masses)
    assert len(reasons) == is_doubted
    assert all("of the model's probability falls on the options" in each for each in reasons)


def test_both_signs_give_a_reason_each() -> None:
    first, second = reasons_to_doubt("team", {True: 1200}, [0.005])
    assert "1,200 of 1,200 answers are True" in first
    assert "only 0.50%" in second


def test_an_accuracy_of_the_most_frequent_answer_is_doubted() -> None:
    (reason,) = reason_to_doubt_accuracy("team", 0.6, 0.6)
    assert "the accuracy, 60.0%, is not above the share of the most frequent" in reason
    assert reason_to_doubt_accuracy("team", 0.601, 0.6) == []


# ---- decisions about many inputs ----------------------------------------------------------------


def test_many_equal_answers_are_warned_about_once(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    found = tiny_model.decide_many(["I was charged twice."] * 20, {"team": TEAM})
    (warning,) = warnings_in(caplog)
    choice = found[0]["team"].choice
    assert warning.startswith(f"decide_many: team: 20 of 20 answers are {choice!r}; unless")


def test_nineteen_equal_answers_are_not_warned_about(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_model.decide_many(["I was charged twice."] * 19, {"team": TEAM})
    assert warnings_in(caplog) == []


def test_a_small_allowed_probability_is_warned_about_for_each_question(
    plain_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    topics = MultiLabel("Is it about this?", ["sport", "money"], "topics")
    plain_model.decide_many(["hello", "a parcel"], [*QUESTIONS, topics])
    names = [warning.split(": only ")[0] for warning in warnings_in(caplog)]
    assert names == [
        f"decide_many: {name}"
        for name in ("team", "angry", "urgency", "topics: sport", "topics: money")
    ]


def test_answers_have_an_allowed_probability_only_if_it_is_requested(plain_model: Model) -> None:
    labels = MultiLabel("Is it about this?", ["sport", "money"], "topics")
    inputs = ["hello"] * (N_MASSES + 2)
    for decision in plain_model.decide_many(inputs, [TEAM, labels]):
        assert decision["team"].allowed_probability is None
        assert all(each.allowed_probability is None for _, each in decision["topics"].answers)
    for decision in plain_model.decide_many(inputs, [TEAM], allowed_probability=True):
        assert decision["team"].allowed_probability is not None


def test_the_allowed_probability_of_the_first_inputs_is_computed(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    score = tiny_model.binding.score_endings

    def noted(*arguments: Any, allowed_probability: bool, **more: Any) -> Any:
        asked.append(allowed_probability)
        return score(*arguments, allowed_probability=allowed_probability, **more)

    monkeypatch.setattr(tiny_model.binding, "score_endings", noted)
    inputs = [f"message {i}" for i in range(N_MASSES + 5)]
    tiny_model.decide_many(iter(inputs), TEAM, max_concurrency=1)
    assert asked == [True] * N_MASSES + [False] * 5


def test_failed_inputs_are_no_answers(tiny_model: Model, caplog: pytest.LogCaptureFixture) -> None:
    inputs: list[Any] = ["I was charged twice."] * 19 + [b"bytes"]
    found = tiny_model.decide_many(inputs, TEAM, return_exceptions=True)
    assert isinstance(found[-1], Exception)
    assert warnings_in(caplog) == []


def test_an_async_model_warns_in_the_same_way(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    model = AsyncModel.of(tiny_model)
    found = asyncio.run(model.decide_many(["I was charged twice."] * 20, {"team": TEAM}))
    (warning,) = warnings_in(caplog)
    assert warning.startswith("decide_many: team: 20 of 20 answers are ")
    assert found[0]["team"].allowed_probability is None


# ---- evaluation --------------------------------------------------------------------------------


def test_a_report_contains_the_warnings(plain_model: Model) -> None:
    examples = [("I was charged twice.", {"team": "billing"})] * 20
    report = evaluate(plain_model, {"team": TEAM}, examples)
    shares, masses, accuracy = report.questions[0].warnings
    assert "20 of 20 answers are" in shares
    assert "falls on the options" in masses
    assert "is not above the share of the most frequent right answer, 100.0%" in accuracy
    assert report.overall.warnings == report.questions[0].warnings
    fewer = evaluate(plain_model, {"team": TEAM}, examples[:19])
    assert len(fewer.questions[0].warnings) == 1  # the allowed probability
