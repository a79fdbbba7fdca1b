"""The prior of a question's options, from inputs that favour none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eliza_ffi import CacheOptions, Model
from eliza_ffi._lazy import Recent
from eliza_ffi.decisions import asking
from eliza_ffi.decisions.asking import QuestionPlan, score_run
from eliza_ffi.decisions.layout import PROMPT_ORDERS, PromptOrder, Shot
from eliza_ffi.decisions.option_prior import (
    CONTENT_FREE,
    EVERYDAY,
    LEAST_LOG_PRIOR,
    MOST_OPTIONS,
    OptionPrior,
)
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompts import AskedQuestion, ask
from eliza_ffi.decisions.questions import Choice, Option, Predicate, Score
from eliza_ffi.decisions.scoring import OptionScores, log_softmax
from eliza_ffi.session.task import Task

Floats = NDArray[np.float64]

F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
CLOSE = 2e-5

INPUT = "I was charged twice for my parcel and nobody answers the phone."
TEAM = Choice("Which team is it?", {"billing": "money", "sales": None, "a": None}, "team")
QUESTIONS: tuple[AskedQuestion, ...] = (
    TEAM,
    Predicate("The writer is very angry.", "angry", if_true="complains"),
    Score("How angry is the writer now?", ["calm", "annoyed", ("furious", "shouts")], "anger"),
)


def test_the_inputs_are_content_free_everyday_and_descriptions() -> None:
    assert OptionPrior(ask(TEAM)).inputs == [*CONTENT_FREE, *EVERYDAY, "money", "sales", "a"]
    angry = ask(QUESTIONS[1], "letters")
    assert OptionPrior(angry).inputs[-2:] == ["complains", "no"]


def raw(model: Model, given: str, question: AskedQuestion, **settings: Any) -> Floats:
    """Return the probabilities of a decision without a prior."""
    decision = model.decide(given, question, prior="none", **settings, **F32)
    return np.array(decision.answers[0].distribution)


def reference(model: Model, given: str, question: AskedQuestion, **settings: Any) -> Floats:
    """Reference implementation: divide by the mean of separate decisions, and normalize."""
    each = [raw(model, text, question, **settings) for text in OptionPrior(ask(question)).inputs]
    n, m = len(CONTENT_FREE), len(CONTENT_FREE) + len(EVERYDAY)
    groups = [np.mean(group, axis=0) for group in (each[:n], each[n:m], each[m:])]
    weights = raw(model, given, question, **settings) / np.mean(groups, axis=0)
    found: Floats = weights / weights.sum()
    return found


@pytest.mark.parametrize("prompt_order", PROMPT_ORDERS)
@pytest.mark.parametrize("settings", [{}, {"scoring": "mean"}, {"answer_style": "letters"}])
def test_probabilities_are_divided_by_the_prior(
    plain_model: Model, prompt_order: PromptOrder, settings: dict[str, Any]
) -> None:
    asked: Any = {"prompt_order": prompt_order, **settings}
    decision = plain_model.decide(INPUT, QUESTIONS, prior="options", **asked, **F32)
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        expected = reference(plain_model, INPUT, question, **asked)
        assert answer.distribution == pytest.approx(expected, abs=CLOSE)
        unchanged = raw(plain_model, INPUT, question, **asked)
        assert np.abs(np.subtract(answer.distribution, unchanged)).max() > 1e-3


def test_each_order_of_the_options_has_its_own_prior(plain_model: Model) -> None:
    asked: Any = {"prompt_order": "question-first"}
    question = Choice("Which of the teams?", ["billing", "sales", "support"])
    backwards = Choice("Which of the teams?", ["support", "sales", "billing"])
    one = reference(plain_model, INPUT, question, **asked)
    other = reference(plain_model, INPUT, backwards, **asked)[::-1]
    assert np.abs(one - other).max() > 1e-3
    both = plain_model.decide(INPUT, question, orders=2, prior="options", **asked, **F32)
    assert both["0"].distribution == pytest.approx((one + other) / 2, abs=CLOSE)


def test_a_chat_can_have_a_prior(tiny_model: Model) -> None:
    question = QUESTIONS[2]
    found = np.log(tiny_model.decide("hello", question, prior="options")["anger"].distribution)
    expected = np.log(reference(tiny_model, "hello", question))
    assert found == pytest.approx(expected, abs=0.3)  # 8-bit weights
    assert np.abs(found - np.log(raw(tiny_model, "hello", question))).max() > 1.0


def uncounted(model: Model, question: AskedQuestion, **settings: Any) -> int:
    """Return the number of inputs for whose prior a request has prompts."""
    how = PromptSettings(**{"format": "plain", "prior": "options", **settings})
    prompts = QuestionPlan(model.session, [question], how).about(model.session, INPUT).args.prompts
    return sum(len(prompt.endings) for prompt in prompts if not prompt.is_counted)


def test_a_prior_is_computed_once(plain_model: Model) -> None:
    question = Predicate("This is asked for the first time.")
    asked: Any = {"prompt_order": "question-first", "prior": "options"}
    n_inputs = len(OptionPrior(ask(question)).inputs)
    assert uncounted(plain_model, question, order="question-first") == n_inputs
    first = plain_model.decide(INPUT, question, **asked, **F32)
    second = plain_model.decide(INPUT, question, **asked, **F32)
    assert uncounted(plain_model, question, order="question-first") == 0
    assert second["0"].probability == pytest.approx(first["0"].probability, abs=CLOSE)
    assert second.usage.forward_passes < first.usage.forward_passes
    without = plain_model.decide(INPUT, question, **{**asked, "prior": "none"}, **F32)
    tokens = [each.usage.input_tokens for each in (first, second, without)]
    assert len(set(tokens)) == 1
    assert without.usage.forward_passes == second.usage.forward_passes


def test_other_prompts_have_another_prior(plain_model: Model) -> None:
    # Equal texts with other descriptions are other questions.
    one = Choice("Which is described?", [Option("a", "letter"), Option("b", "other letter")])
    other = Choice("Which is described?", [Option("a", "the first"), Option("b", "the second")])
    plain_model.decide(INPUT, one, prompt_order="input-first", prior="options")
    assert (uncounted(plain_model, one), uncounted(plain_model, other) > 0) == (0, True)
    question = Predicate("This is asked in many ways.")
    shots = ((question, (Shot("x", 0),)),)
    ways: tuple[dict[str, Any], ...] = (
        {"order": "question-first"},
        {"order": "input-first"},
        {"order": "question-first", "answer_style": "letters"},
        {"order": "question-first", "examples": shots},
    )
    for way in ways:
        assert uncounted(plain_model, question, **way) > 0
        how = PromptSettings(**way, format="plain", prior="options")
        plan = QuestionPlan(plain_model.session, [question], how)
        asked = plan.about(plain_model.session, INPUT)
        run = score_run(plain_model.session, asked.args)
        asked.scores(Task(plain_model.session, run).run())
        assert uncounted(plain_model, question, **way) == 0


@pytest.mark.parametrize(("n", "has_prior"), [(MOST_OPTIONS, True), (MOST_OPTIONS + 1, False)])
def test_a_question_with_many_options_has_no_prior(
    plain_model: Model, n: int, has_prior: bool
) -> None:
    question = Choice("Which number?", [f"number {i}" for i in range(n)])
    assert (uncounted(plain_model, question) > 0) == has_prior
    priors: tuple[Any, ...] = ("options", "none")
    one, other = (
        np.array(plain_model.decide("x", question, prior=prior, **F32)["0"].distribution)
        for prior in priors
    )
    assert (np.abs(one - other).max() > 1e-4) == has_prior


def test_the_three_groups_have_the_same_weight_and_a_prior_has_a_lower_bound() -> None:
    groups = [[0.9, 0.1]] * len(CONTENT_FREE), [[0.6, 0.4]] * len(EVERYDAY), [[0.3, 0.7]] * 2
    scores = [OptionScores(np.log(each)) for group in groups for each in group]
    prior, other = OptionPrior(ask(QUESTIONS[1])), OptionPrior(ask(QUESTIONS[1]))
    prior.scores = scores
    assert np.exp(prior.log_probabilities("constrained")) == pytest.approx([0.6, 0.4])
    other.scores = [OptionScores(log_softmax([0.0, -200.0]))] * len(scores)
    found = other.log_probabilities("constrained")
    assert found == pytest.approx([0.0, LEAST_LOG_PRIOR])


def test_the_least_recently_used_value_is_forgotten() -> None:
    recent: Recent[object] = Recent(2)
    kept = {key: recent.get(key, object) for key in "ab"}
    assert recent.get("a", object) is kept["a"]
    recent.get("c", object)
    assert [recent.get(key, object) is kept[key] for key in "ab"] == [True, False]


def test_a_request_keeps_its_priors_if_other_requests_replace_them(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the answers of such a request were not divided by the prior."""
    settings: Any = {"prompt_format": "plain", "prior": "options", **F32}
    expected = plain_model.decide(INPUT, TEAM, **settings)["team"].distribution
    monkeypatch.setattr(asking, "known_priors", lambda session: Recent(0))
    found = plain_model.decide(INPUT, TEAM, orders=1, **settings)["team"].distribution
    assert found == pytest.approx(expected, abs=CLOSE)
