"""The prior of a question's options, from inputs that favour none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eliza_ffi import CacheOptions, Model
from eliza_ffi._lazy import Recent
from eliza_ffi.decisions.layout import PROMPT_ORDERS, PromptOrder, Shot, frame
from eliza_ffi.decisions.probabilities import log_mean, log_softmax
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompts import AskedQuestion, ask
from eliza_ffi.decisions.questions import Choice, Option, Predicate, Score
from eliza_ffi.evidence import question_plan
from eliza_ffi.evidence.option_prior import (
    CONTENT_FREE,
    EVERYDAY,
    MAX_OPTIONS,
    MIN_LOG_PRIOR,
    measured,
)
from eliza_ffi.evidence.question_plan import QuestionPlan
from eliza_ffi.evidence.scoring import OptionScores
from eliza_ffi.learning import evaluate
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


def raw(model: Model, given: str, question: AskedQuestion, **settings: Any) -> Floats:
    """Return the probabilities of a decision without a prior."""
    decision = model.decide(given, question, prior="none", **settings, **F32)
    return np.array(decision.answers[0].distribution)


def reference(model: Model, given: str, question: AskedQuestion, **settings: Any) -> Floats:
    """Reference implementation: divide by the mean of separate decisions, and normalize."""
    groups = [
        np.mean([raw(model, text, question, **settings) for text in group], axis=0)
        for group in (CONTENT_FREE, EVERYDAY)
    ]
    weights = raw(model, given, question, **settings) / np.mean(groups, axis=0)
    found: Floats = weights / weights.sum()
    return found


@pytest.mark.parametrize("prompt_order", PROMPT_ORDERS)
@pytest.mark.parametrize("settings", [{}, {"scoring": "full"}, {"answer_style": "letters"}])
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


@pytest.mark.parametrize("names", [("money", "goods", "people"), ("Q1_A", "Q2_B", "Q3_C")])
@pytest.mark.parametrize("scoring", ["constrained", "full"])
def test_the_words_of_the_descriptions_are_answers_too(
    plain_model: Model, names: tuple[str, ...], scoring: Any
) -> None:
    """Reference: decide among all words with the same prompt, and take the mean of each option's.

    The prior is the mean over the content-free inputs alone.
    """
    described = ("an invoice or a refund", "a parcel, a parcel of money", "staff: 3 of the staff")
    question = Choice("What is it about?", list(zip(names, described, strict=True)))
    answers = [["invoice", "refund"], ["parcel"], ["staff", "the"]]
    if names[0] == "money":  # the word "money" of another option does not count
        answers = [[name, *words] for name, words in zip(names, answers, strict=True)]
    else:
        answers[1].append("money")
    asked = ask(question)
    assert asked.answers == answers
    words = [word for listed in answers for word in listed]
    shown = replace(asked, options=tuple(option.in_words for option in asked.options))
    around = frame(shown, "plain", "question-first")

    def scores(text: str) -> Floats:
        found = plain_model.decide(
            text,
            Choice("What?", words),
            prompt=lambda given, _: around.with_input(given),
            scoring=scoring,
            **F32,
        )
        logs = dict(zip(words, np.log(found.answers[0].distribution), strict=True))
        return log_softmax([np.mean([logs[word] for word in listed]) for listed in answers])

    expected = log_softmax(scores(INPUT) - log_mean([scores(text) for text in CONTENT_FREE]))
    settings: Any = {"prompt_format": "plain", "prior": "options", "scoring": scoring}
    found = plain_model.decide(INPUT, question, **settings, **F32).answers[0]
    assert found.distribution == pytest.approx(np.exp(expected), abs=1e-4)
    assert found.value in names
    backwards = replace(question, choices=question.choices[::-1])
    two = plain_model.decide(INPUT, question, orders=2, **settings, **F32).answers[0].distribution
    one = plain_model.decide(INPUT, backwards, **settings, **F32).answers[0].distribution[::-1]
    assert two == pytest.approx(np.add(found.distribution, one) / 2, abs=1e-4)


@pytest.mark.parametrize(
    "question",
    [
        Choice("Which?", [("a", "first"), ("b", None)]),
        Choice("Which?", [("a", "first"), ("b", "of it")]),  # no word is long enough
        Choice("Which?", [("a", "first"), ("b", "second")], none="neither"),
        Predicate("Is it?", if_true="it is first", if_false="it is second"),
    ],
)
def test_names_are_the_only_answers_if_an_option_has_no_words(question: AskedQuestion) -> None:
    assert ask(question).answers is None
    assert ask(Choice("Which?", [("a", "first"), ("b", "second")]), "letters").answers is None


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


def unmeasured(model: Model, question: AskedQuestion, **settings: Any) -> bool:
    """Return whether the prior of a question is unknown."""
    how = PromptSettings(**{"format": "plain", "prior": "options", **settings})
    return any(QuestionPlan(model.session, [question], how).prior_runs(model.session))


def test_a_prior_is_computed_once(plain_model: Model) -> None:
    question = Predicate("This is asked for the first time.")
    asked: Any = {"prompt_order": "question-first", "prior": "options"}
    assert unmeasured(plain_model, question, order="question-first")
    first = plain_model.decide(INPUT, question, **asked, **F32)
    second = plain_model.decide(INPUT, question, **asked, **F32)
    assert not unmeasured(plain_model, question, order="question-first")
    assert second["0"].probability == pytest.approx(first["0"].probability, abs=CLOSE)
    without = plain_model.decide(INPUT, question, **{**asked, "prior": "none"}, **F32)
    usages = [each.usage for each in (first, second, without)]
    assert len({(each.input_tokens, each.forward_passes) for each in usages}) == 1


@pytest.mark.parametrize(
    "ask_many",
    [
        lambda model, asked: model.decide_many(
            list("abcd"), asked, prior="options", max_concurrency=4
        ),
        lambda model, asked: evaluate(model, asked, [(x, True) for x in "abc"], prior="options"),
    ],
    ids=["decide_many", "evaluate"],
)
def test_a_batch_measures_each_prior_once(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch, ask_many: Callable[..., Any]
) -> None:
    found: list[Any] = []

    def noted(scores: Any) -> Any:
        found.append(measured(scores))
        return found[-1]

    monkeypatch.setattr(question_plan, "measured", noted)
    known: Recent[Any] = Recent(8)
    monkeypatch.setattr(question_plan, "known_priors", lambda session: known)
    ask_many(plain_model, Predicate("The text is asked about in a batch."))
    assert 0 < len(found) == len(known._kept)  # evaluate also asks in another order


def test_other_prompts_have_another_prior(plain_model: Model) -> None:
    # Equal texts with other descriptions are other questions.
    one = Choice("Which is described?", [Option("a", "letter"), Option("b", "other letter")])
    other = Choice("Which is described?", [Option("a", "the first"), Option("b", "the second")])
    plain_model.decide(INPUT, one, prompt_order="input-first", prior="options")
    assert (unmeasured(plain_model, one), unmeasured(plain_model, other)) == (False, True)
    question = Predicate("This is asked in many ways.")
    shots = ((question, (Shot("x", 0),)),)
    ways: tuple[dict[str, Any], ...] = (
        {"order": "question-first"},
        {"order": "input-first"},
        {"order": "question-first", "answer_style": "letters"},
        {"order": "question-first", "examples": shots},
    )
    for way in ways:
        assert unmeasured(plain_model, question, **way)
        how = PromptSettings(**way, format="plain", prior="options")
        plan = QuestionPlan(plain_model.session, [question], how)
        Task(plain_model.session, plan.prior_runs(plain_model.session)).run()
        assert not unmeasured(plain_model, question, **way)


@pytest.mark.parametrize(("n", "has_prior"), [(MAX_OPTIONS, True), (MAX_OPTIONS + 1, False)])
def test_a_question_with_many_options_has_no_prior(
    plain_model: Model, n: int, has_prior: bool
) -> None:
    question = Choice("Which number?", [f"number {i}" for i in range(n)])
    assert unmeasured(plain_model, question) == has_prior
    priors: tuple[Any, ...] = ("options", "none")
    one, other = (
        np.array(plain_model.decide("x", question, prior=prior, **F32)["0"].distribution)
        for prior in priors
    )
    assert (np.abs(one - other).max() > 1e-4) == has_prior


def test_both_groups_have_the_same_weight_and_a_prior_has_a_lower_bound() -> None:
    groups = [[0.9, 0.1]] * len(CONTENT_FREE), [[0.5, 0.5]] * len(EVERYDAY)
    scores = [OptionScores(np.log(each)) for group in groups for each in group]
    assert np.exp(measured(scores)["constrained"]) == pytest.approx([0.7, 0.3])
    found = measured([OptionScores(log_softmax([0.0, -200.0]))] * len(scores))["constrained"]
    assert found == pytest.approx([0.0, MIN_LOG_PRIOR])


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
    monkeypatch.setattr(question_plan, "known_priors", lambda session: Recent(0))
    found = plain_model.decide(INPUT, TEAM, orders=1, **settings)["team"].distribution
    assert found == pytest.approx(expected, abs=CLOSE)
