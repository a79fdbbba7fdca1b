"""The format, the order and the prior that ``auto`` chooses, and the examples in prompts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from statistics import fmean
from typing import Any
from unittest.mock import Mock

import pytest

from eliza_ffi import AsyncModel, Model
from eliza_ffi._lazy import once_for_each
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.chat.tokens import ChatTokenizer
from eliza_ffi.decisions.layout import Shot
from eliza_ffi.decisions.prompt_settings import MIN_CHAT_MASS, PromptSettings
from eliza_ffi.decisions.prompts import ask
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Question, Score
from eliza_ffi.errors import BusyError, ContextFullError, InvalidArgumentError, NoChatTemplateError
from eliza_ffi.evidence import auto_prompts
from eliza_ffi.evidence.auto_prompts import PROBES, sample_of, settings_of_prompts
from eliza_ffi.evidence.reasoning import question_task
from eliza_ffi.learning import calibrate, evaluate

TEAM = Choice("Which team?", {"billing": "money", "sales": None}, "team")
ANGRY = Predicate("The writer is angry.", "angry")
ANGER = Score("How angry?", ["calm", "cross", "furious"], "anger")
TOPICS = MultiLabel("Is it about this?", ["sport", "money"], "topics")


def resolved(model: Model, *questions: Question, **given: Any) -> PromptSettings:
    inputs, examples = given.pop("inputs", None), given.pop("examples", None)
    return settings_of_prompts(
        model.session, questions or (TEAM,), given, examples=examples, inputs=inputs
    )


def forget(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Forget what a function has returned for the open models."""
    monkeypatch.setattr(
        auto_prompts, name, once_for_each(inspect.unwrap(getattr(auto_prompts, name)))
    )


@pytest.fixture
def undeclared(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """Return the embedded model without the format and the order in its file."""
    monkeypatch.setattr(auto_prompts, "declared", lambda session: (None, None))
    forget(monkeypatch, "_measured")
    return tiny_model


def test_a_model_without_a_template_gets_plain_text(plain_model: Model) -> None:
    how = resolved(plain_model)
    assert (how.format, how.order, how.prior) == ("plain", "question-first", "options")
    (prompt,) = plain_model.decision_prompts("hello", TEAM)
    assert prompt.endswith("Text: sales\nAnswer: sales\n\nText: hello\nAnswer:")
    with pytest.raises(NoChatTemplateError):
        plain_model.decide("hello", TEAM, prompt_format="chat")


def test_the_file_of_eliza_tiny_names_its_format_and_order(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_prompts, "_chat_mass", lambda *_: pytest.fail("not needed"))
    for inputs in (None, ["short"] * 100):
        how = resolved(tiny_model, inputs=inputs)
        assert (how.format, how.order, how.prior) == ("chat", "input-first", "none")
    how = resolved(tiny_model, prompt_format="plain", prompt_order="question-first")
    assert (how.format, how.order, how.prior) == ("plain", "question-first", "options")


@pytest.mark.parametrize("name", ["prompt_format", "prompt_order"])
def test_an_unknown_format_or_order_in_a_file_is_rejected(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    describe = tiny_model.session.describe
    facts = {"model": {**describe()["model"], name: "poem"}}
    forget(monkeypatch, "declared")
    monkeypatch.setattr(tiny_model.session, "describe", lambda: facts)
    with pytest.raises(InvalidArgumentError, match=f"eliza.{name} must be one of .*'poem'"):
        resolved(tiny_model)


@pytest.mark.parametrize(
    ("mass", "form"),
    [(MIN_CHAT_MASS, "chat"), (MIN_CHAT_MASS - 1e-9, "plain"), (1.0, "chat"), (0.0, "plain")],
)
def test_the_format_is_measured_once(
    undeclared: Model, monkeypatch: pytest.MonkeyPatch, mass: float, form: str
) -> None:
    chat_mass = Mock(return_value=mass)
    monkeypatch.setattr(auto_prompts, "_chat_mass", chat_mass)
    assert [resolved(undeclared, question).format for question in (TEAM, ANGRY)] == [form] * 2
    chat_mass.assert_called_once()
    assert resolved(undeclared, prompt_format="chat").format == "chat"
    assert resolved(undeclared, prompt_format="plain").format == "plain"


def test_the_format_depends_on_the_allowed_probability_of_the_probes(
    undeclared: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[float] = []
    chat_mass = auto_prompts._chat_mass
    monkeypatch.setattr(
        auto_prompts, "_chat_mass", lambda *given: measured.append(chat_mass(*given)) or 1.0
    )
    chat: Any = {"prompt_format": "chat", "prompt_order": "question-first"}
    answers = [
        undeclared.decide(text, Choice(question, options), allowed_probability=True, **chat)["0"]
        for text, question, options in PROBES
    ]
    masses = [answer.allowed_probability for answer in answers]
    assert resolved(undeclared).format == "chat"
    means = [fmean(masses[:n]) for n in range(1, len(PROBES) + 1)]
    clear = [mean for mean in means if not MIN_CHAT_MASS / 4 < mean < 3 * MIN_CHAT_MASS]
    assert measured == [pytest.approx([*clear, means[-1]][0], rel=0.05)]


@pytest.mark.parametrize(
    ("masses", "expected"),
    [
        ([0.05, 0.9, 0.9, 0.9], 0.05),  # clear: the others are not asked
        ([0.8, 0.0, 0.0, 0.0], 0.8),
        ([0.1, 0.0, 0.9, 0.8], 0.05),
        ([0.3, 0.4, 0.1, 0.0], 0.2),
    ],
)
def test_one_probe_is_enough_if_it_is_clear(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, masses: list[float], expected: float
) -> None:
    left = iter(masses)

    def scoring(run: Any, args: Any) -> Any:
        scores = [Mock(allowed_probability=next(left)) for _ in args.endings]
        return Mock(result=lambda: Mock(scores=scores))

    monkeypatch.setattr(auto_prompts, "Scoring", scoring)
    probes = auto_prompts._probes(tiny_model.session)
    assert auto_prompts._chat_mass(Mock(), probes) == pytest.approx(expected)


def test_the_measurement_waits_no_longer_than_its_request(undeclared: Model) -> None:
    """It is a part of the request, so it has the request's time limit, and can be cancelled."""
    session = undeclared.session
    asked = Choice("Which team waits?", ["billing", "sales"])  # so that no plan is known
    with ExitStack() as streams:
        for _ in range(session.turns.n):
            next(streams.enter_context(undeclared.stream("x", 50)))
        for settings in ({}, {"examples": [("I paid twice.", "billing")]}):
            with pytest.raises(BusyError, match=r"open streams \(options"):  # not "after 30 s"
                undeclared.decide("hello", asked, timeout=0, **settings)

        async def leave() -> None:
            face = AsyncModel.of(undeclared)
            for call in (face.decide, face.decide_many, face.decision_prompts):
                with pytest.raises(asyncio.TimeoutError):
                    given: Any = ["hello"] if call == face.decide_many else "hello"
                    await asyncio.wait_for(call(given, asked), 0.05)

        asyncio.run(leave())
        assert session.turns.n_waiting == 0
    assert undeclared.decide("hello", asked, timeout=0)[0].value in ("billing", "sales")


def test_waiting_requests_do_not_measure_the_format_again(
    undeclared: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_mass = Mock(return_value=1.0)
    monkeypatch.setattr(auto_prompts, "_chat_mass", chat_mass)
    asked = Choice("Which team measures?", ["billing", "sales"])
    tasks = [question_task(undeclared, "hello", asked, {}) for _ in range(3)]
    assert len({task.run()[0].value for task in tasks}) == 1
    chat_mass.assert_called_once()


def test_a_template_that_rejects_a_user_message_gets_plain_text(
    undeclared: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = undeclared.session
    template = ChatTemplate("{{ raise_exception('a system message first') }}")
    chat = ChatTokenizer(template, session.tokenize, session.detokenize)
    monkeypatch.setattr(session, "_chat", chat)
    assert resolved(undeclared).format == "plain"


def test_a_single_prompt_has_the_question_first_and_a_single_input_comes_first(
    undeclared: Model,
) -> None:
    for inputs in (None, ["short"], ["long " * 500] * 40):
        how = resolved(undeclared, TEAM, prompt_format="chat", inputs=inputs)
        assert how.order == "question-first"
    assert resolved(undeclared, TEAM, ANGRY, prompt_format="chat").order == "input-first"
    assert resolved(undeclared, TEAM, orders=2, prompt_format="chat").order == "input-first"
    assert resolved(undeclared, TEAM, ANGRY, prompt_format="plain").order == "question-first"


def test_the_order_that_reads_fewer_tokens_is_used(undeclared: Model) -> None:
    """Two prompts cost 2 n tokens if the questions come first, n + q_1 + q_2 if the input does."""
    session = undeclared.session
    n_questions = sum(len(session.tokenize(ask(each).text)) for each in (TEAM, ANGRY))
    word = "x y "
    n_words = next(n for n in range(500) if len(session.tokenize(word * n)) > n_questions)
    for n, order in ((n_words - 1, "question-first"), (n_words, "input-first")):
        how = resolved(undeclared, TEAM, ANGRY, prompt_format="chat", inputs=[word * n] * 3)
        assert how.order == order
    # The mean of all inputs counts; an input that cannot be used does not.
    mixed: list[Any] = ["x", word * n_words * 2, b"bytes"]
    how = resolved(undeclared, TEAM, ANGRY, prompt_format="chat", inputs=mixed)
    assert how.order == "input-first"
    assert sample_of(range(3), 5) == [0, 1, 2]
    assert sample_of(range(10), 5) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("form", ["chat", "plain"])
def test_more_prompts_than_half_of_the_cached_texts_have_the_input_first(
    undeclared: Model, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert undeclared.session.n_texts > 4 * undeclared.session.turns.n
    half = 4
    monkeypatch.setattr(undeclared.session, "n_texts", 2 * half)
    for n, order in ((half, "question-first"), (half + 1, "input-first")):
        questions = [Predicate(f"It is {i}.") for i in range(n)]
        how = resolved(undeclared, *questions, prompt_format=form, inputs=["x"] * 3)
        assert how.order == order
    # Labels and orders count as prompts.
    settings: Any = {"prompt_format": "plain", "inputs": ["x"] * 3}
    assert resolved(undeclared, TEAM, ANGRY, TOPICS, **settings).order == "question-first"
    assert resolved(undeclared, TEAM, ANGRY, ANGER, TOPICS, **settings).order == "input-first"
    assert resolved(undeclared, TEAM, ANGRY, orders=2, **settings).order == "question-first"
    assert resolved(undeclared, TEAM, ANGRY, ANGER, orders=2, **settings).order == "input-first"


def test_prompts_of_more_than_half_of_the_cells_have_the_input_first(
    undeclared: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"prompt_format": "plain", "inputs": ["x"] * 3}
    assert resolved(undeclared, TEAM, ANGRY, **settings).order == "question-first"
    monkeypatch.setattr(undeclared.session, "n_ctx", lambda: 32)
    assert resolved(undeclared, TEAM, ANGRY, **settings).order == "input-first"


@pytest.mark.parametrize(
    ("settings", "prior"),
    [
        ({}, "options"),
        ({"answer_style": "letters"}, "none"),
        ({"examples": [("x", "sales")]}, "options"),
        ({"prior": "none"}, "none"),
        ({"answer_style": "letters", "prior": "options"}, "options"),
    ],
)
def test_plain_prompts_with_texts_have_a_prior(
    plain_model: Model, settings: dict[str, Any], prior: str
) -> None:
    assert resolved(plain_model, **settings).prior == prior


CUSTOM: Any = {"prompt": lambda given, asked: given}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt_order": "first"}, "prompt_order must be one of auto, question-first, input-f"),
        ({"prompt_format": "text"}, "prompt_format must be one of auto, chat, plain, got 'text'"),
        ({"prior": 1}, "prior must be one of .*, got 1"),
        ({**CUSTOM, "prompt_order": "input-first"}, "prompt_order has no effect with a custom"),
        ({**CUSTOM, "prompt_format": "chat"}, "prompt_format has no effect with a custom prompt"),
        ({**CUSTOM, "prior": "options"}, "prior has no effect with a custom prompt"),
        ({**CUSTOM, "examples": [("x", "sales")]}, "examples and prompt cannot be combined"),
    ],
)
def test_settings_that_are_unknown_or_have_no_effect_are_rejected(
    tiny_model: Model, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tiny_model.decide("x", TEAM, **settings)
    auto: Any = dict.fromkeys(("prompt_order", "prompt_format", "prior"), "auto")
    assert len(tiny_model.decide("x", TEAM, **CUSTOM, **auto)) == 1


def test_calibrate_and_evaluate_resolve_auto_settings(
    plain_model: Model, tiny_model: Model
) -> None:
    examples = [(f"text {i}", {"team": "sales" if i % 3 else "billing"}) for i in range(12)]
    for model, expected in (
        (plain_model, ("plain", "question-first", "options")),
        (tiny_model, ("chat", "input-first", "none")),
    ):
        calibration = calibrate(model, {"team": TEAM}, examples, method="temperature")
        report = evaluate(model, {"team": TEAM}, examples)
        for each in (calibration, report):
            assert (each.prompt_format, each.prompt_order, each.prior) == expected


def test_examples_are_pairs_of_an_input_and_answers(tiny_model: Model) -> None:
    pairs = [("I paid twice.", "billing"), ("A car, please.", "sales"), ["A lamp?", "sales"]]
    shots = (Shot("I paid twice.", 0), Shot("A car, please.", 1), Shot("A lamp?", 1))
    assert resolved(tiny_model, examples=pairs).examples == ((TEAM, shots),)
    named = [(text, {"team": answer}) for text, answer in pairs]
    assert resolved(tiny_model, examples=iter(named)).examples == ((TEAM, shots),)
    unnamed = Predicate("It is so.")
    for answer in (True, {"0": True}):
        found = resolved(tiny_model, unnamed, examples=[({"a": 1}, answer)]).examples
        assert found == ((unnamed, (Shot('{"a": 1}', 0),)),)
    (label, _) = resolved(tiny_model, TOPICS, examples=[("Goal!", ["sport"])]).examples
    assert label == (TOPICS.predicates[0], (Shot("Goal!", 0),))
    assert resolved(tiny_model, examples=[]).examples == ()
    of_several = [("Twice!", {"team": "billing", "angry": True}), ("A car.", {"team": "sales"})]
    found = resolved(tiny_model, TEAM, ANGRY, examples=of_several).examples
    assert found == ((TEAM, (Shot("Twice!", 0), Shot("A car.", 1))), (ANGRY, (Shot("Twice!", 0),)))


def test_prompts_show_the_examples_of_their_question(plain_model: Model) -> None:
    examples = [("I paid twice!", {"team": "billing"}), ("A car, please.", {"angry": False})]
    team, angry = plain_model.decision_prompts("hello", [TEAM, ANGRY], examples=examples)
    assert team.endswith("Text: I paid twice!\nAnswer: billing\n\nText: hello\nAnswer:")
    assert angry.endswith("- no\n\nText: A car, please.\nAnswer: no\n\nText: hello\nAnswer:")
    alone = plain_model.decide("hello", TEAM, examples=[("I paid twice!", "billing")])
    both = plain_model.decide("hello", [TEAM, ANGRY], examples=examples)
    assert both["team"].distribution == pytest.approx(alone["team"].distribution, abs=0.02)
    without = plain_model.decide("hello", TEAM, prior="none")["team"].distribution
    assert alone["team"].distribution != pytest.approx(without, abs=1e-3)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([("x", "support")], "example 0, 'team': expected one of 'billing', 'sales', got"),
        ([("x", "sales"), ("y", {"team": None})], "example 1 answers none of the questions"),
        ("xy", "examples must be a list of pairs"),
        ([(b"x", "sales")], "neither a string nor JSON"),
    ],
)
def test_malformed_examples_are_rejected(tiny_model: Model, examples: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tiny_model.decide("x", TEAM, examples=examples)


@pytest.mark.parametrize("form", ["chat", "plain"])
def test_the_error_of_too_many_examples_says_how_many_fit(tiny_model: Model, form: str) -> None:
    examples = [("word " * 200, "sales")] * 20

    def ask_with(n: int, given: str = "x") -> Callable[[], Any]:
        settings: Any = {"prompt_format": form, "prior": "none"}
        return lambda: tiny_model.decide(given, TEAM, examples=examples[:n], **settings)

    with pytest.raises(ContextFullError, match="context is too short for 20 examples") as raised:
        ask_with(20)()
    assert "pass fewer examples" in str(raised.value)
    n_fit = int(str(raised.value).split("; ")[1].split()[0])
    assert 2 < n_fit < 20
    assert len(ask_with(n_fit - 1)()) == 1
    with pytest.raises(ContextFullError, match=f"too short for {n_fit + 1} examples"):
        ask_with(n_fit + 1)()


def test_the_description_of_a_model_is_read_once(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, every decision read it again."""
    forget(monkeypatch, "declared")
    session, describe = tiny_model.session, Mock(wraps=tiny_model.session.describe)
    monkeypatch.setattr(session, "describe", describe)
    for _ in range(3):
        resolved(tiny_model, prompt_format="plain")
    describe.assert_called_once()


def test_an_explicit_auto_keeps_the_settings_of_a_calibration(tiny_model: Model) -> None:
    """Before, "auto" replaced them by the model's own, and the calibration was rejected."""
    settings: Any = {"prompt_format": "plain", "prompt_order": "question-first", "prior": "none"}
    examples = [(f"Parcel {i} is late.", {"team": "billing"}) for i in range(10)]
    fitted = calibrate(tiny_model, TEAM, examples, method="batch", **settings)
    auto: Any = dict.fromkeys(settings, "auto")
    how = settings_of_prompts(tiny_model.session, (TEAM,), auto, calibration=fitted)
    assert (how.format, how.order, how.prior) == ("plain", "question-first", "none")
    assert tiny_model.decide("hello", TEAM, calibration=fitted, **auto).calibrated
