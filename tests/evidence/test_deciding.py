"""Decisions of real models, compared with separate choices and with the scoring formulas."""

from __future__ import annotations

import asyncio
import enum
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from eliza_ffi import AsyncModel, BusyError, CacheOptions, Model
from eliza_ffi.choices.label_set import tokenize_choice
from eliza_ffi.decisions.answers import Decision, MultiLabelAnswer
from eliza_ffi.decisions.layout import PROMPT_ORDERS, PromptOrder
from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompts import AnswerStyle, AskedQuestion, RenderedQuestion, ask
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.errors import (
    InvalidArgumentError,
)
from eliza_ffi.evidence import deciding
from eliza_ffi.evidence.calibration import Calibration
from eliza_ffi.evidence.deciding import MAX_OPTIONS, MAX_PROMPTS, plan_of
from eliza_ffi.evidence.question_plan import QuestionPlan, orders_of
from eliza_ffi.evidence.scoring import ScoringRule
from eliza_ffi.learning.fitting import calibrate
from eliza_ffi.learning.report import evaluate

Floats = NDArray[np.float64]

# In full precision, other sequences in the same pass change only the last digits.
F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
CLOSE = 2e-5
QUANTIZED = 0.02  # with 8-bit weights, other sequences in the same pass change more

INPUT = "I was charged twice for my parcel and nobody answers the phone."
TEAM = Choice(
    "Which team should read this?",
    {"send": None, "send it back": "returns", "sales": None, "a": None},
    "team",
    none="none of these",
)
ANGRY = Predicate("The writer is angry.", "angry", if_true="complains")
ANGRY_AGAIN = Predicate("The writer is angry.", if_true="complains")
ANGER = Score("How angry is the writer?", ["calm", "annoyed", "very furious"], "anger")
QUESTIONS: tuple[AskedQuestion, ...] = (TEAM, ANGRY, ANGER)

INPUT_FIRST: Any = {"prompt_format": "plain", "prompt_order": "input-first", "prior": "none"}


@pytest.fixture
def model(plain_model: Model) -> Model:
    return plain_model


def assert_same(found: Decision, expected: Decision) -> None:
    """Check that two decisions have the same answers with the same probabilities."""
    assert list(found) == list(expected)
    for one, other in zip(found.answers, expected.answers, strict=True):
        assert one.distribution == pytest.approx(other.distribution, abs=CLOSE)


def prompts_of(
    model: Model, given: Any, question: AskedQuestion, how: PromptSettings
) -> list[tuple[RenderedQuestion, list[int]]]:
    """Return a question in each order, with the tokens of its whole prompt."""
    plan = QuestionPlan(model.session, [question], how)
    prompts = [
        [*prompt.tokens, *ending.tokens]
        for prompt in plan.about(model.session, given).args.prompts
        for ending in prompt.endings
    ]
    asked = [ask(question, how.answer_style, order) for order in orders_of(question, how.orders)]
    return list(zip(asked, prompts, strict=True))


def lead_of(how: PromptSettings) -> str:
    """Return the space between a plain prompt, which ends with a colon, and the label."""
    return " " if how.format == "plain" else ""


def separate_choices(
    model: Model, given: Any, question: AskedQuestion, how: PromptSettings
) -> Floats:
    """Reference implementation: return the probabilities of separate choices."""
    each = []
    for asked, tokens in prompts_of(model, given, question, how):
        labels = [lead_of(how) + option.label for option in asked.options]
        chosen = model.choose(tokens, labels, probabilities=True, **F32)
        assert chosen.probabilities is not None
        probabilities = np.zeros(len(labels))
        probabilities[list(asked.order)] = [chosen.probabilities[label] for label in labels]
        each.append(probabilities)
    mean: Floats = np.mean(each, axis=0)
    return mean


@pytest.mark.parametrize("prompt_order", PROMPT_ORDERS)
@pytest.mark.parametrize("labels", ["text", "letters"])
@pytest.mark.parametrize("orders", [1, 2, 5])
def test_a_decision_matches_separate_choices(
    model: Model, labels: AnswerStyle, orders: int, prompt_order: PromptOrder
) -> None:
    how = PromptSettings(labels, orders, order=prompt_order, format="plain")
    asked: Any = {**INPUT_FIRST, "prompt_order": prompt_order}
    decision = model.decide(INPUT, QUESTIONS, answer_style=labels, orders=orders, **asked, **F32)
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        expected = separate_choices(model, INPUT, question, how)
        assert answer.distribution == pytest.approx(expected, abs=CLOSE)
        assert sum(answer.distribution) == pytest.approx(1.0, abs=1e-9)


def test_a_decision_of_a_trained_model_matches_separate_choices(tiny_model: Model) -> None:
    decision = tiny_model.decide(INPUT, QUESTIONS, **F32)
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        expected = separate_choices(tiny_model, INPUT, question, PromptSettings())
        assert answer.distribution == pytest.approx(expected, abs=QUANTIZED)


def log_p(model: Model, tokens: Sequence[int], token: int) -> float:
    """Return the log-probability of a token in the whole vocabulary."""
    return math.log(model.end_of_turn(list(tokens), token).probability)


def label_tokens(
    model: Model, asked: RenderedQuestion, how: PromptSettings
) -> list[tuple[int, ...]]:
    return [
        tokenize_choice(lead_of(how) + option.label, model.tokenize, model.detokenize)
        for option in asked.options
    ]


def reference_scores(model: Model, question: AskedQuestion, how: PromptSettings) -> Floats:
    """Reference implementation: return the probabilities by the formula of "full" scoring."""
    each = []
    for asked, prompt in prompts_of(model, INPUT, question, how):
        scores = np.zeros(len(asked.options))
        for place, tokens in enumerate(label_tokens(model, asked, how)):
            full = sum(log_p(model, [*prompt, *tokens[:i]], t) for i, t in enumerate(tokens))
            scores[asked.order[place]] = full
        each.append(np.exp(log_softmax(scores)))
    mean: Floats = np.mean(each, axis=0)
    return mean


@pytest.mark.parametrize(("labels", "orders"), [("text", 1), ("text", 3), ("letters", 1)])
def test_scores_over_whole_rows_match_the_formula(
    model: Model, labels: AnswerStyle, orders: int
) -> None:
    how = PromptSettings(labels, orders, format="plain")
    decision = model.decide(
        INPUT, QUESTIONS, scoring="full", answer_style=labels, orders=orders, **INPUT_FIRST
    )
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        expected = reference_scores(model, question, how)
        assert answer.distribution == pytest.approx(expected, rel=1e-2, abs=1e-9)


@pytest.mark.parametrize("settings", [{"orders": 2}, {"prior": "none"}, {"prior": "options"}])
def test_a_second_decision_does_not_tokenize_the_labels_again(
    model: Model, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Before, a decision with 100 options and a rule over whole rows tokenized all of them."""
    question = Choice("Which one?", [f"{settings}, number {i}" for i in range(26)], "which")
    settings = {"scoring": "full", "prompt_format": "plain", **settings}
    names = ("tokenize", "detokenize", "prepare_choices")
    calls = [Mock(wraps=getattr(model.binding, name)) for name in names]
    for name, call in zip(names, calls, strict=True):
        monkeypatch.setattr(model.binding, name, call)
    first = model.decide("one", question, **settings)
    n_calls = sum(call.call_count for call in calls)
    assert n_calls > 0
    second = model.decide("two", question, **settings)
    assert sum(call.call_count for call in calls) == n_calls
    assert first["which"].distribution != second["which"].distribution
    again = model.decide("one", question, **settings)
    assert again["which"].distribution == pytest.approx(first["which"].distribution, abs=1e-3)


@pytest.mark.parametrize("orders", [1, 2])
def test_allowed_probability_is_the_probability_of_the_first_tokens(
    model: Model, orders: int
) -> None:
    how = PromptSettings(orders=orders, format="plain")
    decision = model.decide(
        INPUT, QUESTIONS, allowed_probability=True, orders=orders, **INPUT_FIRST
    )
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        masses = []
        for asked, prompt in prompts_of(model, INPUT, question, how):
            first = {tokens[0] for tokens in label_tokens(model, asked, how)}
            masses.append(sum(math.exp(log_p(model, prompt, token)) for token in first))
        assert answer.allowed_probability == pytest.approx(np.mean(masses), rel=1e-2)


def test_labels_match_separate_predicates_in_two_passes(model: Model) -> None:
    labels = MultiLabel("Is it about this?", {"money": "payments", "sport": None}, "topics")
    given, settings = "something new about a parcel", {**INPUT_FIRST, **F32}
    decision = model.decide(given, labels, allowed_probability=True, **settings)
    answer = decision["topics"]
    assert isinstance(answer, MultiLabelAnswer)
    assert decision.usage.forward_passes <= 2
    for (value, part), predicate in zip(answer.answers, labels.predicates, strict=True):
        expected = model.decide(given, predicate, **settings)["0"]
        assert part.probability == pytest.approx(expected.probability, abs=CLOSE)
        assert answer.probabilities[value] == part.probability
        assert part.allowed_probability is not None
    both = model.decide(given, [ANGRY, labels, ANGER, ANGRY_AGAIN], **settings)
    assert list(both) == ["angry", "topics", "anger", "3"]
    alone = model.decide(given, ANGER, **settings)["anger"]
    assert both["anger"].distribution == pytest.approx(alone.distribution, abs=CLOSE)
    assert both["3"].probability == pytest.approx(both["angry"].probability, abs=CLOSE)


@pytest.mark.parametrize(
    "question",
    [
        lambda i: Predicate(f"Statement {i} is true."),
        lambda i: Choice(f"What to do, {i}?", ["send an email", "send a letter", "call"]),
        lambda i: Score(f"How much, {i}?", ["very little", "very much", "some"]),
    ],
)
def test_twenty_questions_about_500_tokens_need_at_most_three_passes(
    tiny_model: Model, question: Callable[[int], AskedQuestion]
) -> None:
    given = "".join(f"line {i}: {i * 7919}\n" for i in range(40))
    n_input = len(tiny_model.tokenize(given))
    assert 450 < n_input < 550
    asked = [question(i) for i in range(20)]
    first = tiny_model.decide(given, asked).usage
    assert first.forward_passes <= 3
    whole = sum(
        len(tokens)
        for each in asked
        for _, tokens in prompts_of(tiny_model, given, each, PromptSettings())
    )
    assert n_input < first.input_tokens < whole / 5
    # The input stays in the cache for other questions.
    others = [question(i) for i in range(100, 120)]
    second = tiny_model.decide(given, others).usage
    assert second.cached_tokens >= n_input - 2
    assert second.forward_passes <= first.forward_passes
    assert second.seconds > 0.0


@pytest.mark.slow
def test_400_questions_fit_into_one_decision(model: Model) -> None:
    asked = [Predicate(f"Is it {i}?") for i in range(400)]
    decision = model.decide("hello", asked, **INPUT_FIRST, **F32)
    assert len(decision) == 400
    for i in (0, 199, 399):
        alone = model.decide("hello", asked[i], **INPUT_FIRST, **F32)["0"].probability
        assert decision[str(i)].probability == pytest.approx(alone, abs=CLOSE)


def test_a_custom_prompt_replaces_the_built_in_one(model: Model) -> None:
    def write(given: str, asked: RenderedQuestion) -> str:
        return f"message: {given}\n{asked.question.instructions}\naction: "

    choice = Choice("What now?", ["RESPOND", "IGNORE", "STOP"])
    answer = model.decide("hello", choice, prompt=write, **F32)["0"]
    actions, text = ["RESPOND", "IGNORE", "STOP"], "message: hello\nWhat now?\naction: "
    expected = model.choose(text, actions, probabilities=True, **F32).probabilities
    assert dict(answer.probabilities) == pytest.approx(expected, abs=CLOSE)

    def beginning(given: str, asked: RenderedQuestion) -> str:
        return "hello" + asked.question.instructions[9:]

    both = [choice, Choice("What now?!", ["RESPOND", "IGNORE"])]  # one prompt begins the other
    assert len(model.decide("hello", both, prompt=beginning, **F32)) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scoring": "best"}, "scoring must be one of constrained, .*, got 'best'"),
        ({"answer_style": "digits"}, "'digits'"),
        ({"orders": 0}, "orders must be a whole number from 1 to 64, got 0"),
        ({"min_probability": 1.5}, "min_probability must be a number from 0 to 1, got 1.5"),
        ({"min_probability": math.nan}, "min_probability must be a number from 0 to 1, got nan"),
    ],
)
def test_settings_out_of_range_are_rejected_before_the_model_runs(
    tiny_model: Model, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tiny_model.decide("x", ANGRY, **settings)
    with pytest.raises(InvalidArgumentError, match=message):
        tiny_model.decide_many([], ANGRY, **settings)


def test_many_inputs_are_answered_in_order(model: Model) -> None:
    inputs = [f"message {i}: hello" for i in range(20)]
    calls: list[tuple[int, int | None]] = []
    found = model.decide_many(
        iter(inputs), QUESTIONS, progress=lambda *now: calls.append(now), max_concurrency=3, **F32
    )
    for given, decision in zip(inputs, found, strict=True):
        assert_same(decision, model.decide(given, QUESTIONS, **F32))
    assert calls == [(i + 1, None) for i in range(20)]


@pytest.mark.parametrize("how", ["threads", "tasks", "batch"])
def test_concurrent_decisions_run_two_at_a_time_on_cpu(
    model: Model, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    inputs = [f"message {i}: hello" for i in range(12)]
    expected = [model.decide(given, QUESTIONS, **F32) for given in inputs]
    most = _count_concurrent(model, monkeypatch)
    if how == "threads":
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda given: model.decide(given, QUESTIONS, **F32), inputs))
    elif how == "tasks":

        async def all_of_them() -> list[Decision]:
            face = AsyncModel.of(model)
            return await asyncio.gather(*(face.decide(each, QUESTIONS, **F32) for each in inputs))

        found = asyncio.run(all_of_them())
    else:
        found = model.decide_many(inputs, QUESTIONS, max_concurrency=4, **F32)
    assert most() == (4 if how == "batch" else 2)
    for decision, alone in zip(found, expected, strict=True):
        assert_same(decision, alone)


def _count_concurrent(model: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that returns the highest number of concurrent decisions so far."""
    seen: list[int] = []
    decide = model.binding.decide

    def noted(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.02)  # lets other decisions start
        seen.append(model.session.turns.n_running)
        return decide(*arguments, **more)

    monkeypatch.setattr(model.binding, "decide", noted)
    return lambda: max(seen)


def test_a_caller_that_does_not_wait_ignores_the_concurrency_limit(model: Model) -> None:
    with model.session.turns.one(None, at_most=2), model.session.turns.one(None, at_most=2):
        assert len(model.decide(INPUT, ANGRY, timeout=0)) == 1
        with pytest.raises(BusyError, match="limit of 2 running requests"):
            model.decide(INPUT, ANGRY, timeout=0.01)


def test_a_failed_input_raises_or_returns_its_error(tiny_model: Model) -> None:
    inputs = ["fine", b"bytes", "fine, too"]
    with pytest.raises(InvalidArgumentError, match=r"inputs\[1\]: input is neither a"):
        tiny_model.decide_many(inputs, ANGRY)
    found = tiny_model.decide_many(inputs, ANGRY, return_exceptions=True)
    assert [isinstance(one, Decision) for one in found] == [True, False, True]
    assert isinstance(found[1], InvalidArgumentError)


@pytest.mark.parametrize("question", [Choice, MultiLabel])
def test_equal_options_of_other_types_have_answers_of_their_own(
    tiny_model: Model, question: Any
) -> None:
    class Color(str, enum.Enum):
        RED, BLUE = "red", "blue"

    for options in (list(Color), ["red", "blue"], list(Color)):
        asked = question("Which?", options)
        (answer,) = tiny_model.decide("The sky", asked).answers
        values = list(answer.probabilities)
        assert list(map(type, values)) == list(map(type, options))


def test_a_plan_is_kept_for_equal_questions_and_settings(tiny_model: Model) -> None:
    plan = plan_of(tiny_model.session, {"angry": ANGRY}, {"orders": 1})
    asked = Predicate(ANGRY.instructions, if_true=ANGRY.if_true, if_false=ANGRY.if_false)
    assert plan_of(tiny_model.session, {"angry": asked}, {"orders": 1}) is plan
    assert plan_of(tiny_model.session, {"other": asked}, {"orders": 1}) is not plan
    assert (
        plan_of(tiny_model.session, {"angry": replace(asked, if_true="so")}, {"orders": 1})
        is not plan
    )
    with pytest.raises(InvalidArgumentError, match="orders must be"):  # although 1 == True
        plan_of(tiny_model.session, {"angry": ANGRY}, {"orders": True})
    many = [Predicate(f"Is it {i}?") for i in range(MAX_PROMPTS + 1)]
    large = Choice("Which?", [f"option {i}" for i in range(MAX_OPTIONS + 1)])
    for each in (many, large):
        assert plan_of(tiny_model.session, each, {}) is not plan_of(tiny_model.session, each, {})
    examples = [("x", True)]
    shown = [plan_of(tiny_model.session, ANGRY, {"examples": examples}) for _ in range(2)]
    assert shown[0] is not shown[1]  # the list may change


def test_a_plan_is_kept_for_a_second_if_the_template_writes_the_time(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 7.1
    monkeypatch.setattr(deciding._plans_of(tiny_model.session), "reads_clock", True)
    monkeypatch.setattr(deciding, "time", SimpleNamespace(time=lambda: now))
    plan = plan_of(tiny_model.session, ANGRY, {})
    now = 7.9
    assert plan_of(tiny_model.session, ANGRY, {}) is plan
    now = 8.0
    assert plan_of(tiny_model.session, ANGRY, {}) is not plan


FITTED = [(f"message {i}: hello", {"team": "sales" if i % 3 else "a"}) for i in range(12)]
SHOWN = [("I paid twice.", {"team": "send it back"}), ("A car, please.", {"team": "sales"})]


@pytest.mark.parametrize(
    ("settings", "scoring", "examples"),
    [
        ({"answer_style": "letters", "orders": 2}, "constrained", []),
        ({"answer_style": "text", "orders": 1}, "full", []),
        ({"prior": "options"}, "constrained", SHOWN),
    ],
)
def test_a_calibration_provides_settings_and_is_applied(
    model: Model, tmp_path: Path, settings: Any, scoring: ScoringRule, examples: Any
) -> None:
    settings, path = {**INPUT_FIRST, **settings}, tmp_path / "team.json"
    shown = {"scoring": scoring, "examples": examples}
    calibrate(model, TEAM, FITTED, method="temperature", **settings, **shown).save(path)
    (fitted,) = Calibration.load(path).questions
    found = model.decide(INPUT, TEAM, calibration=path, **F32)
    plain = model.decide(INPUT, TEAM, scoring=scoring, examples=examples, **settings, **F32)
    assert (found.calibrated, plain.calibrated) == (True, False)
    raw = np.array(plain["team"].distribution) ** (1 / fitted.temperature)
    assert found["team"].distribution == pytest.approx(raw / raw.sum(), abs=CLOSE)
    assert np.abs(np.subtract(found["team"].distribution, plain["team"].distribution)).max() > 0.01
    report = evaluate(model, TEAM, FITTED, calibration=path)
    assert {name: getattr(report, name) for name in settings} == settings
    assert (report.scoring, report.n_examples) == (scoring, len(examples))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"answer_style": "letters"}, "another answer style"),
        ({"orders": 2}, "another number of orders"),
        ({"scoring": "full"}, "another scoring: expected 'constrained', got 'full'"),
        ({"prompt": lambda given, asked: "x", "examples": []}, "another prompt"),
        ({"questions": ANGRY}, "another question"),
        ({"prompt_order": "question-first"}, "another prompt order: expected 'input-first', got"),
        ({"prompt_format": "chat"}, "another prompt format: expected 'plain', got 'chat'"),
        ({"prior": "none"}, "another prior: expected 'options', got 'none'"),
        ({"examples": SHOWN[:1]}, "other examples in the prompt of 'team'"),
        ({"examples": []}, "other examples in the prompt of 'team'"),
    ],
)
def test_a_calibration_rejects_other_settings(
    tiny_model: Model, settings: dict[str, Any], message: str
) -> None:
    fitted: Any = {"prompt_order": "input-first", "prompt_format": "plain", "prior": "options"}
    calibration = calibrate(
        tiny_model, TEAM, FITTED, method="temperature", examples=SHOWN, **fitted
    )
    asked = {"questions": TEAM, "calibration": calibration, **settings}
    with pytest.raises(InvalidArgumentError, match=f"the calibration is for {message}"):
        tiny_model.decide(INPUT, **asked)
    if asked.pop("questions") == TEAM:
        with pytest.raises(InvalidArgumentError, match=f"the calibration is for {message}"):
            evaluate(tiny_model, TEAM, FITTED, **asked)


class Reply(enum.Enum):
    YES = "yes"
    NO = "no"


class Said(str, enum.Enum):
    YES = "yes"
    NO = "no"


@pytest.mark.parametrize("kind", [Reply, Said])
def test_an_enum_gives_its_members_with_and_without_a_calibration(
    tiny_model: Model, kind: type[enum.Enum]
) -> None:
    question = Choice("Does the writer agree?", kind)
    texts = Choice("Does the writer agree?", ["yes", "no"])
    of_texts = tiny_model.decide("Sure!", texts)[0]
    answer: Any = tiny_model.decide("Sure!", question)[0]
    assert isinstance(answer.choice, kind)
    assert answer.distribution == pytest.approx(of_texts.distribution, rel=1e-2)
    examples = [(f"I agree {i}", kind["YES"]) for i in range(15)]
    examples += [(f"I refuse {i}", kind["NO"]) for i in range(15)]
    fitted = calibrate(
        tiny_model, question, examples, method="temperature", risk=0.5, examples=examples[:1]
    )
    again = Calibration.from_text(fitted.to_text())
    calibrated: Any = tiny_model.decide("Sure!", question, calibration=again)[0]
    assert isinstance(calibrated.choice, kind)
    assert {*map(type, calibrated.prediction_set)} <= {kind}
    assert tiny_model.decide("Sure!", texts, calibration=again).calibrated
