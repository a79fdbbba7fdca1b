"""Warnings about prompts that seem not to work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from eliza_ffi import AsyncModel, Model
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.evidence.deciding import plan_of
from eliza_ffi.evidence.doubts import (
    MIN_MASS,
    MIN_ROWS,
    N_MASSES,
    reason_to_doubt_accuracy,
    reason_to_doubt_names,
    reasons_to_doubt,
)
from eliza_ffi.learning import evaluate

TEAM = Choice("Which team should read this?", ["billing", "sales"], "team")
ANGRY = Predicate("The writer is angry.", "angry")
QUESTIONS = (TEAM, ANGRY, Score("How urgent is it?", ["can wait", "now"], "urgency"))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    for record in caplog.records:
        assert (record.name, record.levelno) == ("eliza_ffi", logging.WARNING)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("answers", "masses", "sentences"),
    [
        ({"a": MIN_ROWS - 1}, [], []),
        ({"a": MIN_ROWS}, [], ["team: 20 of 20 answers are 'a'; unless that is right, "]),
        ({"a": 90, "b": 10}, [], []),
        ({"a": 91, "b": 9}, [], ["team: 91 of 100 answers are 'a'"]),
        ({"b": 1, "a": 19}, [], ["team: 19 of 20 answers are 'a'"]),
        ({}, [], []),
        ({"a": 1}, [MIN_MASS], []),
        ({"a": 1}, [MIN_MASS - 1e-6], ["of the model's probability falls on the options"]),
        ({"a": 1}, [0.0, 2 * MIN_MASS], []),
        ({"a": 1}, [0.0, 1.9 * MIN_MASS], ["of the model's probability falls on the options"]),
        ({True: 1200}, [0.005], ["1,200 of 1,200 answers are True", "only 0.50%"]),
    ],
)
def test_equal_answers_and_small_allowed_probabilities_are_doubted(
    answers: dict[Any, int], masses: list[float], sentences: list[str]
) -> None:
    reasons = reasons_to_doubt("team", answers, masses)
    assert len(reasons) == len(sentences)
    for reason, part in zip(reasons, sentences, strict=True):
        assert part in reason and "measure with evaluate" in reason


def test_an_accuracy_of_the_most_frequent_answer_is_doubted() -> None:
    (reason,) = reason_to_doubt_accuracy("team", 0.6, 0.6)
    assert "the accuracy, 60.0%, is not above the share of the most frequent" in reason
    assert reason_to_doubt_accuracy("team", 0.601, 0.6) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_many_equal_answers_are_warned_about_once(
    tiny_model: Model, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def decide_many(inputs: list[Any], **more: Any) -> list[Any]:
        if is_async:
            model = AsyncModel.of(tiny_model)
            return list(asyncio.run(model.decide_many(inputs, {"team": TEAM}, **more)))
        return tiny_model.decide_many(inputs, {"team": TEAM}, **more)

    same: list[Any] = ["I was charged twice."] * 19
    failed = decide_many([*same, b"bytes"], return_exceptions=True)  # which is no answer
    assert isinstance(failed[-1], Exception) and warnings_in(caplog) == []
    found = decide_many([*same, same[0]])
    (warning,) = warnings_in(caplog)
    choice = found[0]["team"].choice
    assert warning.startswith(f"decide_many: team: 20 of 20 answers are {choice!r}; unless")
    assert found[0]["team"].allowed_probability is None


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
    decision = tiny_model.binding.decision

    def noted(*arguments: Any, allowed_probability: bool, **more: Any) -> Any:
        asked.append(allowed_probability)
        return decision(*arguments, allowed_probability=allowed_probability, **more)

    monkeypatch.setattr(tiny_model.binding, "decision", noted)
    inputs = [f"message {i}" for i in range(N_MASSES + 5)]
    tiny_model.decide_many(iter(inputs), TEAM, max_concurrency=1)
    assert asked == [True] * N_MASSES + [False] * 5


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


def test_codes_without_descriptions_are_listed(plain_model: Model) -> None:
    assert reason_to_doubt_names("team", []) == []
    (reason,) = reason_to_doubt_names("team", ["Q3_A", "Q3_B", "Q3_C", "Q3_D"])
    assert "'Q3_A', 'Q3_B', 'Q3_C', ... look like codes" in reason
    names = Choice("Which?", [("Q3_A", "money"), "Q3_B", "sales"], "team")
    described = Choice("Which?", {"Q3_A": "money", "Q3_B": "parcels"}, "team")
    for question, codes in ((names, ["Q3_B"]), (described, [])):
        plan = plan_of(plain_model.session, question, {}, "decide_many", ["a", "b"])
        assert plan.codes(0) == codes
