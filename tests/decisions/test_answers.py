"""Answers: values, confidences and probabilities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions.answers import (
    ChoiceAnswer,
    Decision,
    DecisionUsage,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
    answer_of,
    choice_confidence,
    collect,
    expand,
    score_confidence,
)
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.errors import InvalidArgumentError

USAGE = DecisionUsage(input_tokens=10, cached_tokens=4, forward_passes=2, seconds=0.5)


@pytest.mark.parametrize(
    ("confidence_of", "probabilities", "confidence"),
    [
        (choice_confidence, [0.5, 0.5], 0.0),
        (choice_confidence, [0.75, 0.25], 0.5),
        (choice_confidence, [0.1, 0.7, 0.1, 0.1], 0.6),  # (0.7 - 1/4) / (3/4)
        (choice_confidence, [1.0, 0.0, 0.0], 1.0),
        (choice_confidence, [1.0], 1.0),
        # The confidence of a score is 1 - d / d_u, but at least 0. d is the mean distance to the
        # most probable level, d_u that of a uniform distribution to the middle of the scale.
        (score_confidence, [0.0, 1.0, 0.0], 1.0),
        (score_confidence, [0.25, 0.5, 0.25], 0.25),  # d = 1/2, d_u = 2/3
        (score_confidence, [0.5, 0.0, 0.5], 0.0),  # d = 1
        (score_confidence, [0.8, 0.2], 0.6),  # d = 1/5, d_u = 1/2
        (score_confidence, [0.1, 0.2, 0.4, 0.3], 0.3),  # d = 0.2 + 0.2 + 0.3, d_u = 1
        (score_confidence, [0.0, 0.0, 0.0, 0.5, 0.5], 1 - 0.5 / 1.2),
    ],
)
def test_confidences_match_their_formulas(
    confidence_of: Any, probabilities: list[float], confidence: float
) -> None:
    assert confidence_of(probabilities) == pytest.approx(confidence, abs=1e-12)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=10))
def test_confidences_are_between_0_and_1(weights: list[float]) -> None:
    probabilities = [weight / sum(weights) for weight in weights]
    for confidence in (choice_confidence(probabilities), score_confidence(probabilities)):
        assert 0.0 <= confidence <= 1.0
    with pytest.raises(InvalidArgumentError, match="expected 2 or more levels, got 1"):
        score_confidence([1.0])


def test_a_predicate_is_true_from_probability_one_half() -> None:
    assert PredicateAnswer(probability=0.5).value is True
    answer = PredicateAnswer(probability=0.2)
    assert answer.value is False
    assert answer.confidence == pytest.approx(0.6)
    assert answer.distribution == pytest.approx((0.2, 0.8))


def test_a_choice_is_the_first_most_probable_option() -> None:
    answer = answer_of(Choice("?", ["a", "b", "c"], "q"), [0.3, 0.35, 0.35])
    assert isinstance(answer, ChoiceAnswer)
    assert (answer.name, answer.choice, answer.value) == ("q", "b", "b")
    assert answer.probability == 0.35
    assert dict(answer.probabilities) == {"a": 0.3, "b": 0.35, "c": 0.35}
    assert answer.ranked() == [("b", 0.35), ("c", 0.35), ("a", 0.3)]


def test_a_score_is_the_expected_level() -> None:
    answer = answer_of(Score("?", ["low", "mid", "high"]), [0.25, 0.25, 0.5])
    assert isinstance(answer, ScoreAnswer)
    assert answer.score == answer.value == 1.25
    assert (answer.label, answer.probability) == ("high", 0.5)
    assert answer.levels == (("low", 0.25), ("mid", 0.25), ("high", 0.5))


@pytest.mark.parametrize(
    ("question", "probabilities"),
    [
        (Predicate("?"), [0.45, 0.55]),
        (Choice("?", ["a", "b"]), [0.55, 0.45]),
        (Score("?", ["a", "b"]), [0.55, 0.45]),
    ],
)
def test_a_model_abstains_only_below_the_threshold(
    question: Predicate | Choice | Score, probabilities: list[float]
) -> None:
    abstained = answer_of(question, probabilities, min_probability=0.56)
    assert abstained.abstained
    assert abstained.value is None
    assert abstained.distribution == pytest.approx(tuple(probabilities))
    answered = answer_of(question, probabilities, min_probability=0.55)
    assert not answered.abstained
    assert answered.value is not None


def test_a_labels_answer_contains_the_labels_that_fit() -> None:
    labels = MultiLabel("About?", ["a", "b", True], "topics")
    instructions = [each.instructions for each in expand(labels)]
    assert instructions == ["About?\na", "About?\nb", "About?\ntrue"]
    parts = [
        answer_of(each, [p, 1 - p], 0.9, 0.6)
        for each, p in zip(expand(labels), [0.8, 0.55, 0.1], strict=True)
    ]
    answer = collect(labels, parts)
    assert isinstance(answer, MultiLabelAnswer)
    assert answer.name == "topics"
    assert answer.abstained and answer.value is None  # b is below the threshold
    assert answer.labels == ("a", "b")
    assert answer.probability == pytest.approx(0.8 * 0.55 * 0.9)
    sure = [answer_of(each, [0.1, 0.9], 0.9, 0.6) for each in expand(labels)]
    none = collect(labels, sure)
    assert (none.value, none.abstained) == ((), False)
    assert repr(none) == "MultiLabelAnswer(() of 3 labels)"
    assert repr(answer) == "MultiLabelAnswer(None of 3 labels, abstained)"
    assert dict(answer.probabilities) == pytest.approx({"a": 0.8, "b": 0.55, True: 0.1})
    assert answer.confidence == pytest.approx(0.1)


def test_a_decision_maps_names_and_positions_to_answers_in_question_order() -> None:
    answers = (
        PredicateAnswer(name="z", probability=0.5),
        PredicateAnswer(probability=0.6),
        PredicateAnswer(name="a", probability=0.7),
    )
    decision = Decision(answers, USAGE)
    assert list(decision) == ["z", "1", "a"]
    assert len(decision) == 3
    assert {name: answer.value for name, answer in decision.items()} == dict.fromkeys("z1a", True)
    assert decision["1"] is decision[1] is answers[1]
    assert decision[0] is answers[0] and decision[-1] is decision.get("a") is answers[2]
    assert "0" not in decision and decision.get(3) is None
    for key in (3, -4, "2", "c"):
        with pytest.raises(KeyError):
            decision[key]
    assert not decision.calibrated
