"""The effects of passages, compared with a decision about the input without each of them."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from write_decision_models import cached_decision_model

from eliza_ffi import AsyncModel, CacheOptions, Model
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.decisions.answers import decisions_answer, systemone_answer
from eliza_ffi.decisions.passages import cuts
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import question_plan
from eliza_ffi.learning import calibrate
from eliza_ffi.library.loading import Library

# In full precision, other sequences in the same pass change only the last digits.
F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
CLOSE = 2e-5
QUANTIZED = 0.02  # with 8-bit weights, other sequences in the same pass change more
TEXT = "Hello there. I was charged twice! My dog is well.\nI need an answer today. Thanks."
QUESTIONS = {
    "team": Choice("Which team?", {"billing": "payments", "send it back": None}, none="neither"),
    "urgent": Predicate("The writer needs an answer today."),
    "anger": Score("How angry is the writer?", ["calm", "annoyed", "very furious"]),
    "about": MultiLabel("Is it about this?", ["money", "dogs"]),
}


def singles(decision: Any) -> list[Any]:
    *answers, labels = decision.answers
    return [*answers, *(each for _, each in labels.answers)]


def check(model: Model, given: Any, close: float = CLOSE, **settings: Any) -> None:
    """Compare an explained decision with separate decisions about the input and its rests."""
    questions = QUESTIONS
    found = model.decide(given, questions, explain=True, **settings)
    whole = model.decide(given, questions, **settings)
    passages = cuts(given)
    without = [model.decide(each.rest, questions, **settings) for each in passages]
    for i, answer in enumerate(singles(found)):
        expected = singles(whole)[i].distribution
        assert answer.distribution == pytest.approx(expected, abs=close)
        place = expected.index(max(expected))
        assert [(each.start, each.end, each.text) for each in answer.passages] == [
            (each.start, each.end, each.text) for each in passages
        ]
        for passage, rest in zip(answer.passages, without, strict=True):
            p = singles(rest)[i].distribution[place]
            assert passage.probability == pytest.approx(p, abs=close)
            effect = math.log(expected[place] / p)
            assert passage.effect == pytest.approx(effect, abs=close * (2 + 1 / p))


@pytest.mark.parametrize("prompt_format", ["plain", "chat"])
@pytest.mark.parametrize("prompt_order", ["question-first", "input-first"])
@pytest.mark.parametrize("max_tree", [448, 60, 1])
def test_effects_match_separate_decisions(
    tiny_model: Model,
    plain_model: Model,
    prompt_format: str,
    prompt_order: str,
    max_tree: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_plan, "MAX_TREE", max_tree)
    model = tiny_model if prompt_format == "chat" else plain_model
    form: Any = {"prompt_format": prompt_format, "prompt_order": prompt_order}
    check(model, TEXT, CLOSE if model is plain_model else QUANTIZED, **form, **F32)


@pytest.mark.parametrize("settings", [{"orders": 2}, {"scoring": "full"}, {"prior": "options"}])
def test_effects_are_of_the_probabilities_with_all_settings(
    plain_model: Model, settings: dict[str, Any]
) -> None:
    check(plain_model, TEXT, **settings, **F32)


def test_effects_of_a_conversation_and_of_json(plain_model: Model) -> None:
    talk = [
        {"role": "user", "content": "I was charged twice! Help."},
        {"role": "assistant", "content": "When?"},
    ]
    check(plain_model, talk, **F32)
    check(plain_model, {"mail": "I was charged twice! Help.", "id": 7}, **F32)


def test_a_calibration_is_applied_without_each_passage(plain_model: Model) -> None:
    team = QUESTIONS["team"]
    examples = [(f"{word} {i}.", word) for i in range(8) for word in ("billing", "send it back")]
    calibration = calibrate(plain_model, {"team": team}, examples)
    found = plain_model.decide(TEXT, {"team": team}, calibration=calibration, explain=True, **F32)
    for each, cut in zip(found["team"].passages, cuts(TEXT), strict=True):
        rest = plain_model.decide(cut.rest, {"team": team}, calibration=calibration, **F32)
        assert each.probability == pytest.approx(
            rest["team"].probabilities[found["team"].choice], abs=1e-4
        )


TOPIC = Choice("What is it about?", {"money": "bills and invoices", "dogs": "dogs and cats"})


def test_an_encoder_reads_all_rests_together(
    encoder: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    embed_texts = encoder.binding.embed_texts

    def counted(ctx: Any, texts: list[str], **more: Any) -> Any:
        sizes.append(len(texts))
        return embed_texts(ctx, texts, **more)

    monkeypatch.setattr(encoder.binding, "embed_texts", counted)
    with Model(encoder.path, library=encoder.binding.library) as model:
        monkeypatch.setattr(model.binding, "embed_texts", counted)
        found = model.decide(TEXT, TOPIC, explain=True)
    assert sizes[0] == 6  # the text and its five rests; the options come later
    for passage, cut in zip(found[0].passages or (), cuts(TEXT), strict=True):
        rest = encoder.decide(cut.rest, TOPIC)[0].probabilities[found[0].choice]
        assert passage.probability == pytest.approx(rest, abs=1e-3)


def test_an_encoder_chooses_the_passages_that_a_decoder_is_asked_about(
    plain_model: Model, encoder_file: Path, library: Library, encoder: Model
) -> None:
    """A passage is only left out if its text does not fit behind those that change more."""
    questions = {"topic": TOPIC, "urgent": QUESTIONS["urgent"]}
    with Model(plain_model.path, library=library, encoder=encoder_file) as model:
        found = model.decide(TEXT, questions, explain=True, **F32)
        alone = model.decide(TEXT, questions, **F32)
        every = {(each.start, each.end): each.rest for each in cuts(TEXT)}
        asked = {(each.start, each.end) for each in found["topic"].passages}
        for name, answer in found.items():
            assert {(each.start, each.end) for each in answer.passages} == asked
            place = alone[name].distribution.index(max(alone[name].distribution))
            for each in answer.passages:
                rest = model.decide(every[each.start, each.end], questions, **F32)[name]
                assert each.probability == pytest.approx(rest.distribution[place], abs=2e-3)
    whole = np.log(encoder.decide(TEXT, TOPIC)[0].distribution)
    logs = {key: np.log(encoder.decide(each, TOPIC)[0].distribution) for key, each in every.items()}
    changes = {key: abs(whole - each).max() for key, each in logs.items()}
    assert 1 <= len(asked) < len(every)
    assert sum(len(TEXT) - end for _, end in asked) <= 1.5 * len(TEXT)
    for key in every.keys() - asked:
        larger = [other for other in asked if changes[other] > changes[key]]
        assert sum(len(TEXT) - end for _, end in [*larger, key]) > 1.5 * len(TEXT)


def test_all_passages_are_asked_if_the_encoder_knows_nothing_about_the_question(
    plain_model: Model, encoder_file: Path, library: Library
) -> None:
    with Model(plain_model.path, library=library, encoder=encoder_file) as model:
        (answer,) = model.decide(TEXT, QUESTIONS["urgent"], explain=True, **F32).answers
        assert len(answer.passages) == len(cuts(TEXT))


def test_an_input_with_one_sentence_has_no_passages(plain_model: Model) -> None:
    question = QUESTIONS["urgent"]
    for text in ("Only one sentence", " "):
        assert plain_model.decide(text, question, explain=True)[0].passages == ()
    assert plain_model.decide(TEXT, question)[0].passages is None


def test_many_sentences_are_joined(plain_model: Model) -> None:
    text = " ".join(f"It is {i}." for i in range(100))
    (answer,) = plain_model.decide(text, QUESTIONS["urgent"], explain=True).answers
    assert len(answer.passages) == 32
    assert " ".join(each.text for each in answer.passages) == text
    n = sum(len(plain_model.tokenize(each.text)) for each in answer.passages)
    assert n < 4096  # the whole text fits


def test_variants_share_forward_passes(plain_model: Model) -> None:
    question = QUESTIONS["urgent"]
    plain_model.decide("warm up", question)
    alone = plain_model.decide(TEXT, question)
    found = plain_model.decide(TEXT + " ", question, explain=True)
    assert found.usage.forward_passes <= alone.usage.forward_passes + 1


def test_decide_many_and_the_asynchronous_model_explain(tiny_model: Model) -> None:
    question = QUESTIONS["urgent"]
    (expected,) = tiny_model.decide(TEXT, question, explain=True, **F32).answers

    async def asked() -> Any:
        model = AsyncModel.of(tiny_model)
        return await model.decide(TEXT, question, explain=True, **F32)

    many = tiny_model.decide_many([TEXT, "One."], question, explain=True, **F32)
    for found in (many[0][0], asyncio.run(asked())[0]):
        effects = [each.effect for each in found.passages]
        assert effects == pytest.approx([each.effect for each in expected.passages], abs=1e-3)
    assert many[1][0].passages == ()


def test_passages_are_in_the_json(tiny_model: Model) -> None:
    found = tiny_model.decide(TEXT, QUESTIONS, explain=True)
    written = decisions_answer(found["urgent"])["passages"]
    assert [each["text"] for each in written] == [each.text for each in cuts(TEXT)]
    assert written[0].keys() == {"text", "start", "end", "probability", "effect"}
    assert systemone_answer(found["urgent"])["passages"] == written
    labels = decisions_answer(found["about"])
    assert [len(each["passages"]) for each in labels["probabilities"]] == [5, 5]
    assert "passages" not in decisions_answer(tiny_model.decide(TEXT, QUESTIONS)["urgent"])


def test_what_cannot_be_explained_is_an_error(tiny_model: Model, encoder: Model) -> None:
    question = QUESTIONS["urgent"]
    with pytest.raises(InvalidArgumentError, match=r"^explain must be True or False, got 'yes'"):
        tiny_model.decide(TEXT, question, explain="yes")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="explain must be False with think"):
        tiny_model.decide(TEXT, question, explain=True, think=4)
    many = Choice("Which?", list(map(str, range(300))), "number")
    expected = r"explain must be False for the question 'number': expected at most 255 options, got"
    with pytest.raises(InvalidArgumentError, match=expected):
        tiny_model.decide(TEXT, many, explain=True)
    with pytest.raises(TypeError, match="decision_prompts"):
        tiny_model.decision_prompts(TEXT, question, explain=True)  # type: ignore[call-arg]


def test_a_decision_model_explains_texts_only(library: Library) -> None:
    with Model(cached_decision_model("lev"), library=library) as model:
        question = QUESTIONS["urgent"]
        (found,) = model.decide(TEXT, question, explain=True).answers
        for passage, cut in zip(found.passages, cuts(TEXT), strict=True):
            rest = model.decide(cut.rest, question)[0].distribution
            p = rest[0 if found.probability >= 0.5 else 1]
            assert passage.probability == pytest.approx(p, abs=1e-3)
        with pytest.raises(InvalidArgumentError, match="input must be a string to explain"):
            model.decide({"mail": TEXT}, question, explain=True)
