"""Decision models, used through `Model.decide` like any other model."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from label_scores import answered, made_of
from large_vocabularies import DECISION_MODEL_TYPES
from write_decision_models import cached_decision_model

from eliza_ffi import AsyncModel
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score, as_questions
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.errors import InvalidArgumentError, ModelError, NotSupportedError
from eliza_ffi.evidence import METHODS
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

HEADS = tuple(method for method in METHODS if method.startswith("head"))

QUESTIONS = {
    "angry": Predicate("Is the customer angry?", if_true="they shout"),
    "team": Choice("Which team?", {"billing": "money", "sales": None}, none="none of these"),
    "urgency": Score("How urgent is it?", ["can wait", "today", "now"]),
}

INPUT = {"ticket": "charged twice", "n": 3}

ENCODERS = ("laya", "lfm2-d1-omni", "clef")

GENERATORS = [each for each in DECISION_MODEL_TYPES if each.values[0] not in ENCODERS]
MARKED = [each for each in DECISION_MODEL_TYPES if each.values[0] in ("kev", *ENCODERS)]


@pytest.fixture(scope="module", params=DECISION_MODEL_TYPES)
def decision_model(request: pytest.FixtureRequest, library: Library) -> Iterator[Model]:
    path = cached_decision_model(request.param)
    with Model(path, library=library, n_threads=1, options={"flash_attn": "off"}) as model:
        yield model


def unified(text: str) -> str:
    """Return a text without spaces and capital letters, which some tokenizers change."""
    return text.replace(" ", "").casefold()


def test_decision_models_answer_all_questions_in_their_own_format(decision_model: Model) -> None:
    asked = [SystemoneQuestion.of(question, name) for name, question in QUESTIONS.items()]
    expected = [
        answered(decision_model, prompts) for prompts in made_of(decision_model).ask(asked, INPUT)
    ]
    has_labels = made_of(decision_model).marked is None
    decision = decision_model.decide(INPUT, QUESTIONS, allowed_probability=has_labels)
    for answer, p in zip(decision.values(), expected, strict=True):
        # The rounding depends on whether one pass answers all questions or only one.
        assert answer.distribution == pytest.approx(p, abs=2e-3)
        assert max(p) - min(p) > 1e-3
        assert not has_labels or 0.0 < answer.allowed_probability <= 1.0
    assert decision.usage.forward_passes <= 2
    prompts = decision_model.decision_prompts(INPUT, {"angry": QUESTIONS["angry"]})
    assert prompts
    for prompt in map(unified, prompts):
        assert "isthecustomerangry?" in prompt and "chargedtwice" in prompt


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"answer_style": "letters"}, "a decision model of type .* has its own prompts"),
        ({"orders": 2}, "a decision model of type .* has its own prompts"),
        ({"scoring": "full"}, "a decision model of type .* has its own prompts"),
        ({"examples": [("x", {"angry": True})]}, "has its own prompts"),
        ({"prompt_order": "input-first"}, "prompt_order has no effect with a decision model"),
        ({"prior": "options"}, "prior has no effect with a decision model"),
    ],
)
def test_decision_models_reject_settings_of_prompts_and_scores(
    decision_model: Model, setting: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        decision_model.decide("x", QUESTIONS, **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("decision_model", GENERATORS, indirect=True)
def test_decision_models_accept_custom_prompts(decision_model: Model) -> None:
    decision = decision_model.decide(
        "x", QUESTIONS, prompt=lambda given, asked: f"{given}\n{asked.text}\n", orders=2
    )
    assert sum(decision["team"].distribution) == pytest.approx(1.0)


@pytest.mark.slow
def test_decision_models_are_evaluated_and_calibrated_by_default(decision_model: Model) -> None:
    answers = [{"angry": i % 2 == 0, "team": "sales", "urgency": i % 3} for i in range(12)]
    inputs = [{"ticket": f"number {i}", "n": i} for i in range(12)]
    examples = list(zip(inputs, answers, strict=True))
    decisions = decision_model.decide_many(inputs, QUESTIONS)
    report = evaluate(decision_model, QUESTIONS, examples)
    assert (report.scoring, report.answer_style, report.orders) == ("constrained", "text", 1)
    assert not report.calibrated
    for evaluated in report.questions:
        assert (evaluated.n, evaluated.flips) == (12, None)
        expected = [max(decision[evaluated.name].distribution) for decision in decisions]
        assert evaluated.probabilities == pytest.approx(expected, abs=2e-3)
    calibration = calibrate(decision_model, QUESTIONS, examples, method="auto")
    for fitted in calibration.questions:
        assert set(fitted.nll) == set(METHODS) - {*HEADS, "weights"}  # no second source
    calibrated = evaluate(decision_model, QUESTIONS, examples, calibration=calibration)
    for before, after in zip(report.questions, calibrated.questions, strict=True):
        assert after.nll <= before.nll + 1e-3
    decision = decision_model.decide(inputs[0], QUESTIONS, calibration=calibration)
    assert decision.calibrated
    first = calibrated.questions[1].probabilities[0]
    assert max(decision["team"].distribution) == pytest.approx(first, abs=2e-3)
    with pytest.raises(InvalidArgumentError, match="a decision model of type"):
        evaluate(decision_model, QUESTIONS, examples, reorder=2)


def test_a_changed_question_ignores_its_old_source(decision_model: Model) -> None:
    old = {"type": "noul", "instructions": {"ask": "Is it OLD?"}, "criteria": {"true": "x"}}
    (asked,) = as_questions({"late": old})
    changed = replace(asked, instructions="Is it NEW?")
    (prompt,) = decision_model.decision_prompts("x", [changed])[:1]
    assert "isitnew?" in unified(prompt)
    assert "old" not in unified(prompt)


def test_a_question_copies_the_json_of_its_caller(decision_model: Model) -> None:
    given = {"type": "choice", "instructions": "Which?", "criteria": {"a": {"n": 1}, "b": None}}
    asked = as_questions({"q": given})
    before = decision_model.decision_prompts("x", asked)
    given["criteria"]["c"] = None  # type: ignore[index]
    assert decision_model.decision_prompts("x", asked) == before


def test_labels_can_be_mixed_with_numbered_names(decision_model: Model) -> None:
    labels = MultiLabel("Is it about this?", ["sport", "food", "work"])
    for name in ("0", "1", "2", "3"):
        decision = decision_model.decide("x", {name: QUESTIONS["angry"], "topics": labels})
        assert set(decision) == {name, "topics"}
        assert set(decision["topics"].probabilities) == {"sport", "food", "work"}


def test_a_deleted_model_file_raises_model_error(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "moved.gguf"
    shutil.copy(cached_decision_model("openjev"), path)
    with Model(path, library=library, n_threads=1, options={"model_id": "mine"}) as model:
        path.unlink()
        with pytest.raises(ModelError, match="is gone"):
            model.decide("x", QUESTIONS)


@pytest.mark.parametrize("decision_model", MARKED, indirect=True)
def test_models_without_labels_answer_in_every_way(decision_model: Model) -> None:
    inputs = [{"ticket": f"number {i}", "n": i} for i in range(5)]
    alone = [decision_model.decide(each, QUESTIONS).to_dict()["answers"] for each in inputs]
    assert alone[0] != alone[1]

    async def on_event_loop() -> list[Any]:
        model = AsyncModel.of(decision_model)
        one = await model.decide(inputs[0], QUESTIONS)
        return [one, *await model.decide_many(inputs[1:], QUESTIONS)]

    for decisions in (decision_model.decide_many(inputs, QUESTIONS), asyncio.run(on_event_loop())):
        assert [each.to_dict()["answers"] for each in decisions] == alone
        assert {each.usage.forward_passes for each in decisions} == {-1}


@pytest.mark.parametrize("decision_model", MARKED, indirect=True)
def test_what_models_without_labels_cannot_do_is_rejected(decision_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed_probability .* which has no labels"):
        decision_model.decide("x", QUESTIONS, allowed_probability=True)
    with pytest.raises(InvalidArgumentError, match="expected at most 8192 tokens, got "):
        decision_model.decide("x " * 20_000, QUESTIONS)
    found = decision_model.decide_many(["x", "x " * 20_000], QUESTIONS, return_exceptions=True)
    assert isinstance(found[1], InvalidArgumentError) and found[0]["team"].choice
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    with pytest.raises(InvalidArgumentError, match="only text is supported"):
        decision_model.decide(image, QUESTIONS)


def test_the_requests_of_models_without_labels_are_cancelled_between_prompts(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model(cached_decision_model("laya"), library=library, n_threads=1) as model:
        begun, go_on, calls = threading.Event(), threading.Event(), []
        read = model.binding.token_embeddings

        def slow(*arguments: Any) -> Any:
            calls.append(arguments)
            begun.set()
            go_on.wait(60)
            return read(*arguments)

        monkeypatch.setattr(model.binding, "token_embeddings", slow)

        async def cancelled() -> None:
            task = asyncio.create_task(AsyncModel.of(model).decide("x", QUESTIONS))
            await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            asyncio.get_running_loop().call_later(0.1, go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert len(calls) == 1
        assert model.decide("x", QUESTIONS)["team"].choice


def test_older_libraries_name_the_function_that_they_lack(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model(cached_decision_model("laya"), library=library, n_threads=1) as model:
        has = model.binding.library.has
        monkeypatch.setattr(
            model.binding.library, "has", lambda name: "token_emb" not in name and has(name)
        )
        with pytest.raises(NotSupportedError, match="has no eliza_inference_token_embeddings"):
            model.decide("x", QUESTIONS)


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ((), "needs roles"),
        ((0, 0, 0, 0, 0), "roles: expected a question with options"),
        ((0, 2, 0, 0, 0), "roles: expected a question with options"),
        ((0, 4, 0, 1, 4), r"roles\[1\]: expected a question before its options"),
        ((1, 2, 4, 0, 0), r"roles\[1\]: expected options of the last question before another"),
        ((1, 4, 0, 5, 0), r"roles\[3\]: expected 0 to 4, got 5"),
        ((1, 4, 4, 4, 4), r"positions: expected 1 to 1, got 2"),
        ((1, 4), "roles: expected one for each of 5 tokens, got 2"),
    ],
)
def test_roles_mark_questions_with_options(
    library: Library, roles: tuple[int, ...], reason: str
) -> None:
    with Model(cached_decision_model("clef"), library=library, n_threads=1) as model:
        read = partial(model.binding.token_embeddings, model.session.ctx, [5, 6, 7, 8, 9])
        with pytest.raises((InvalidArgumentError, NotSupportedError), match=reason):
            read([0, 1], roles)
        assert read([0, 1], (1, 4, 0, 4, 4)).shape == (2, 1)
        with pytest.raises(NotSupportedError, match="only scores options of questions"):
            model.embed("text")
