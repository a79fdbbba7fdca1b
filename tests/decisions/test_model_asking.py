"""Models made for decisions, through the same door as any other model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from label_scores import answered, made_of
from large_vocabularies import DECISION_MODEL_TYPES
from write_decision_models import cached_decision_model

from eliza_ffi.decisions import (
    METHODS,
    Choice,
    Labels,
    Predicate,
    Score,
    as_questions,
    calibrate,
    evaluate,
)
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.errors import InvalidArgumentError, ModelError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

QUESTIONS = {
    "angry": Predicate("Is the customer angry?", if_true="they shout"),
    "team": Choice("Which team?", {"billing": "money", "sales": None}, none="none of these"),
    "urgency": Score("How urgent is it?", ["can wait", "today", "now"]),
}

INPUT = {"ticket": "charged twice", "n": 3}


@pytest.fixture(scope="module", params=DECISION_MODEL_TYPES)
def made(request: pytest.FixtureRequest, library: Library) -> Iterator[Model]:
    path = cached_decision_model(request.param)
    with Model(path, library=library, n_threads=1, options={"flash_attn": "off"}) as model:
        yield model


def test_are_asked_in_their_own_form_together(made: Model) -> None:
    asked = [SystemoneQuestion.of(question, name) for name, question in QUESTIONS.items()]
    expected = [answered(made, prompts) for prompts in made_of(made).ask(asked, INPUT)]
    decision = made.decide(INPUT, QUESTIONS)
    for answer, p in zip(decision.values(), expected, strict=True):
        # One pass for all of them, or one for each, which differ by rounding.
        assert answer.distribution == pytest.approx(p, abs=2e-3)
    assert decision.usage.passes <= 2


def test_find_what_share_of_the_probability_their_labels_have(made: Model) -> None:
    decision = made.decide("x", QUESTIONS, option_mass=True)
    assert all(0.0 < answer.option_mass <= 1.0 for answer in decision.values())


def test_answer_labels_as_predicates(made: Model) -> None:
    answer = made.decide("x", {"topics": Labels("Is it about this?", ["sport", "food"])})["topics"]
    assert set(answer.probabilities) == {"sport", "food"}


@pytest.mark.parametrize("setting", [{"labels": "letters"}, {"orders": 2}, {"scoring": "joint"}])
def test_have_labels_orders_and_scores_of_their_own(
    made: Model, setting: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgumentError, match="a decision model of type"):
        made.decide("x", QUESTIONS, **setting)  # type: ignore[arg-type]


def test_are_asked_as_any_other_model_with_a_prompt_of_ones_own(made: Model) -> None:
    decision = made.decide(
        "x", QUESTIONS, prompt=lambda given, asked: f"{given}\n{asked.text}\n", orders=2
    )
    assert sum(decision["team"].distribution) == pytest.approx(1.0)


@pytest.mark.slow
def test_are_judged_and_calibrated_without_being_told_how(made: Model) -> None:
    answers = [{"angry": i % 2 == 0, "team": "sales", "urgency": i % 3} for i in range(12)]
    inputs = [{"ticket": f"number {i}", "n": i} for i in range(12)]
    examples = list(zip(inputs, answers, strict=True))
    decisions = made.decide_many(inputs, QUESTIONS)
    report = evaluate(made, QUESTIONS, examples)
    assert (report.rule, report.labels, report.orders, report.calibrated) == (
        *("legal", "text", 1),
        False,
    )
    for judged in report.questions:
        assert (judged.n, judged.flips) == (12, None)
        expected = [max(decision[judged.name].distribution) for decision in decisions]
        assert judged.probabilities == pytest.approx(expected, abs=2e-3)
    calibration = calibrate(made, QUESTIONS, examples, method="auto")
    for fitted in calibration.questions:
        assert set(fitted.nll) == {each for each in METHODS if "unconditional" not in each}
    calibrated = evaluate(made, QUESTIONS, examples, calibration=calibration)
    for before, after in zip(report.questions, calibrated.questions, strict=True):
        assert after.nll <= before.nll + 1e-3
    decision = made.decide(inputs[0], QUESTIONS, calibration=calibration)
    assert decision.calibrated
    first = calibrated.questions[1].probabilities[0]
    assert max(decision["team"].distribution) == pytest.approx(first, abs=2e-3)
    with pytest.raises(InvalidArgumentError, match="a decision model of type"):
        evaluate(made, QUESTIONS, examples, reorder=2)


def test_show_their_prompts(made: Model) -> None:
    prompts = made.decision_prompts(INPUT, {"angry": QUESTIONS["angry"]})
    assert prompts
    for prompt in prompts:
        assert "Is the customer angry?" in prompt and "charged twice" in prompt


def test_a_question_that_was_changed_is_asked_as_it_is_now(made: Model) -> None:
    (asked,) = as_questions(
        {"late": {"type": "noul", "instructions": {"ask": "Is it OLD?"}, "criteria": {"true": "x"}}}
    )
    changed = replace(asked, instructions="Is it NEW?")
    (prompt,) = made.decision_prompts("x", [changed])[:1]
    assert "NEW" in prompt
    assert "OLD" not in prompt


def test_a_question_keeps_its_json_whatever_becomes_of_the_callers(made: Model) -> None:
    given = {"type": "choice", "instructions": "Which?", "criteria": {"a": {"n": 1}, "b": None}}
    asked = as_questions({"q": given})
    before = made.decision_prompts("x", asked)
    given["criteria"]["c"] = None  # type: ignore[index]
    assert made.decision_prompts("x", asked) == before


def test_labels_stand_beside_questions_of_any_name(made: Model) -> None:
    labels = Labels("Is it about this?", ["sport", "food", "work"])
    for name in ("0", "1", "2", "3"):
        decision = made.decide("x", {name: QUESTIONS["angry"], "topics": labels})
        assert set(decision) == {name, "topics"}


def test_a_name_that_the_model_is_given_changes_nothing(library: Library) -> None:
    path = cached_decision_model("openjev")
    with Model(path, library=library, n_threads=1, options={"model_id": "mine"}) as model:
        assert model.decide("x", QUESTIONS)["team"].value is not None


def test_a_model_whose_file_is_gone_says_so(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "moved.gguf"
    shutil.copy(cached_decision_model("openjev"), path)
    with Model(path, library=library, n_threads=1) as model:
        path.unlink()
        with pytest.raises(ModelError, match="is gone"):
            model.decide("x", QUESTIONS)
