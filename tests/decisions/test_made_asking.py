"""Models made for decisions, through the same door as any other model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from label_scores import answered, made_of
from write_decision_models import DEFINITIONS, cached_decision_model

from eliza_ffi.decisions import Choice, Labels, Predicate, Score
from eliza_ffi.decisions.systemone import SystemoneQuestion
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

QUESTIONS = {
    "angry": Predicate("Is the customer angry?", if_true="they shout"),
    "team": Choice("Which team?", {"billing": "money", "sales": None}, none="none of these"),
    "urgency": Score("How urgent is it?", ["can wait", "today", "now"]),
}

INPUT = {"ticket": "charged twice", "n": 3}


@pytest.fixture(scope="module", params=tuple(DEFINITIONS))
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
    with pytest.raises(InvalidArgumentError, match="was made for decisions, of type"):
        made.decide("x", QUESTIONS, **setting)  # type: ignore[arg-type]


def test_are_asked_as_any_other_model_with_a_prompt_of_ones_own(made: Model) -> None:
    decision = made.decide(
        "x", QUESTIONS, prompt=lambda given, asked: f"{given}\n{asked.text}\n", orders=2
    )
    assert sum(decision["team"].distribution) == pytest.approx(1.0)


def test_show_their_prompts(made: Model) -> None:
    prompts = made.decision_prompts(INPUT, {"angry": QUESTIONS["angry"]})
    assert prompts
    for prompt in prompts:
        assert "Is the customer angry?" in prompt and "charged twice" in prompt
