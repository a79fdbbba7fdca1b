"""An encoder, a reranker, and a model with an encoder decide as the reference implementation."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from sentence_encoder import SentenceEncoder
from similarity import similarities, softmax
from tiny_files import write_bert

from eliza_ffi import CacheOptions
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.decisions.prompts import is_code
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Calibration, features
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.scoring import OptionScores, QuestionScores
from eliza_ffi.evidence.sources import N_TEXTS, ComparedOption
from eliza_ffi.learning import calibrate, evaluate, fitting, heads
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TOPICS = {"money": "bills and invoices", "way": "parcels on a truck", "night": None}
LEVELS = [("calm", "no anger at all"), ("angry", "loud words")]
TRUE, FALSE = "a bill was paid", "nothing was paid"
QUESTIONS = {
    "topic": Choice("What is it about?", TOPICS),
    "anger": Score("How angry is it?", LEVELS),
    "paid": Predicate("Was it paid?", if_true=TRUE, if_false=FALSE),
}
TEXT = "The truck with the parcel came at night."
# A quantized model or cache rounds differently in another context.
F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
reference_of = cache(SentenceEncoder)
WORDS = {"money": "bill invoice pay refund", "way": "parcel truck ship courier"}


@pytest.fixture(scope="module")
def both(tiny_model: Model, encoder_file: Path, library: Library) -> Iterator[Model]:
    with Model(tiny_model.path, library=library, encoder=encoder_file) as model:
        yield model


def test_an_encoder_decides_as_the_reference(encoder: Model, encoder_file: Path) -> None:
    embed = reference_of(encoder_file).embed
    decision = encoder.decide(TEXT, QUESTIONS, allowed_probability=True)
    options: dict[str, Any] = {
        "topic": list(TOPICS.items()),
        "anger": LEVELS,
        "paid": [(None, TRUE), (None, FALSE)],
    }
    for name, listed in options.items():
        expected = softmax(similarities(embed, TEXT, listed))
        assert decision[name].distribution == pytest.approx(expected, abs=2e-3), name
        assert decision[name].allowed_probability is None
    assert decision.usage.input_tokens == len(encoder.tokenize(TEXT, add_special=True))
    assert not decision.calibrated


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        *dict.fromkeys(("Q3_TEAM_B", "K7", "money-fx", "comp.sys.ibm.pc", "x", "7"), True).items(),
        *dict.fromkeys(("billing", "sign-up", "rec.autos", "tech_support"), False).items(),
        *dict.fromkeys(("5 stars", "plan B", "день", "_", ""), False).items(),
    ],
)
def test_codes_are_told_from_words(label: str, expected: bool) -> None:
    assert is_code(label) == expected
    described = ("moves",) if expected or not label else (label, "moves")
    assert ComparedOption(label, "moves").texts == described
    assert ComparedOption(label, None).texts == ((label,) if label else ())


def test_a_list_of_inputs_needs_few_calls_and_the_options_one(
    encoder: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    embed_texts = encoder.binding.embed_texts

    def counted(ctx: Any, texts: list[str], **more: Any) -> Any:
        calls.append(list(texts))
        return embed_texts(ctx, texts, **more)

    question = Choice("What?", {"one": "the first of them", "two": "the second of them"})
    texts = [f"text number {i}" for i in range(3 * N_TEXTS)]
    with Model(encoder.path, library=encoder.binding.library) as model:
        monkeypatch.setattr(model.binding, "embed_texts", counted)
        together = model.decide_many(texts, [question])
        n_options = sum("This text is about the first of them." in call for call in calls)
        assert n_options == 1
        assert len(calls) <= 8
        assert sorted(text for call in calls for text in call if text in texts) == sorted(texts)
    alone = [encoder.decide(text, [question]) for text in texts[::20]]
    for one, other in zip(together[::20], alone, strict=True):
        assert one[0].distribution == pytest.approx(other[0].distribution, abs=2e-3)


def test_a_wrong_input_in_a_list_has_an_error_of_its_own(encoder: Model) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}]
    inputs = ["first", "  ", "third", picture]
    found = encoder.decide_many(inputs, QUESTIONS, return_exceptions=True)
    assert [isinstance(each, Exception) for each in found] == [False, True, False, True]
    assert "input must be a text that is not empty" in str(found[1])


def test_an_input_longer_than_the_window_is_read_in_windows(encoder: Model) -> None:
    n_most = encoder.describe()["model"]["n_ctx_train"]
    long = "a parcel on a truck " * n_most
    short = "a parcel on a truck " * (n_most // 8)
    first, second = encoder.decide_many([long, short], [QUESTIONS["topic"]])
    assert first[0].distribution == pytest.approx(second[0].distribution, abs=0.05)


def test_options_without_descriptions_are_reported_once(
    encoder_file: Path, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    described = Choice("What?", {"a": "the first", "b": "the second"}, none="neither")
    with caplog.at_level(logging.WARNING), Model(encoder_file, library=library) as model:
        model.decide(TEXT, [described])
        assert not caplog.records
        model.decide(TEXT, [Choice("What?", ["yellow", "green"])])
        model.decide(TEXT, [Choice("What?", ["red", "blue"])])
    assert len(caplog.records) == 1
    assert "the option 'yellow' has no description" in caplog.text


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Predicate("Is it night?"), "'Is it night\\?': .*give the predicate if_true and if_false"),
        (Predicate("Is it?", if_true="night", if_false=" "), "if_true and if_false"),
        (MultiLabel("Which?", TOPICS), "needs a threshold for each label: use decide_many"),
    ],
)
def test_questions_that_an_encoder_cannot_answer_are_rejected(
    encoder: Model, question: Any, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        encoder.decide(TEXT, [question])
    if isinstance(question, MultiLabel):
        with pytest.raises(InvalidArgumentError, match=said):
            evaluate(encoder, [question], [(TEXT, ["way"])])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt_order", "question-first"),
        ("prompt_format", "plain"),
        ("prior", "options"),
        ("examples", [("a bill", "money")]),
        ("orders", 2),
        ("answer_style", "letters"),
        ("prompt", lambda text, asked: text),
        ("think", 10),
    ],
)
def test_settings_of_prompts_have_no_effect_with_an_encoder(
    encoder: Model, name: str, value: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        encoder.decide(TEXT, [QUESTIONS["topic"]], **{name: value})  # type: ignore[misc]


def test_equal_answers_are_blamed_on_the_descriptions(
    encoder: Model, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        encoder.decide_many(["the same"] * 30, [Choice("What?", TOPICS, "topic")])
    assert "unless that is right, the descriptions do not work: describe every" in caplog.text
    assert "prompt" not in caplog.text


def test_a_choice_with_many_options_returns_the_best(encoder: Model, encoder_file: Path) -> None:
    texts = {f"option {i}": f"a thing with the number {i}" for i in range(300)}
    decision = encoder.decide(TEXT, [Choice("Which?", texts, top=3)])
    found = similarities(reference_of(encoder_file).embed, TEXT, list(texts.items()))
    best = sorted(texts, key=lambda name: found[list(texts).index(name)], reverse=True)
    assert decision[0].value in best[:3]
    assert decision[0].n_options == 300


def test_the_inputs_center_the_options_and_give_labels_thresholds(
    encoder: Model, encoder_file: Path
) -> None:
    embed = reference_of(encoder_file).embed
    texts = [f"{word} and {i}" for i, word in enumerate(" ".join(WORDS.values()).split() * 2)]
    asked = {"one": QUESTIONS["topic"], "all": MultiLabel("Which of these?", TOPICS)}
    decisions = encoder.decide_many(texts, asked, prior="inputs")
    values = np.array([similarities(embed, text, list(TOPICS.items())) for text in texts])
    centered = values - values.mean(axis=0)
    above = centered - values.std(axis=0)
    for row, decision in enumerate(decisions):
        expected = softmax(centered[row].tolist())
        assert decision["one"].distribution == pytest.approx(expected, abs=0.01)
        fits = [1 / (1 + math.exp(-each)) for each in above[row]]
        assert [*decision["all"].probabilities.values()] == pytest.approx(fits, abs=0.01)


def test_a_reranker_decides_by_the_relevance_of_descriptions(
    tmp_path: Path, library: Library
) -> None:
    path = tmp_path / "reranker.gguf"
    write_bert(path, gguf.PoolingType.RANK)
    with Model(path, library=library) as model:
        assert model.session.kind == "reranker"
        documents = [description or label for label, description in TOPICS.items()]
        values = model.binding.rerank(model.session.ctx, TEXT, documents)
        decision = model.decide(TEXT, QUESTIONS)
        expected = softmax(values.tolist())
        assert decision["topic"].distribution == pytest.approx(expected, abs=1e-4)
        with pytest.raises(InvalidArgumentError, match="input must be a text that is not empty"):
            model.decide(" ", QUESTIONS)
        calibration = calibrate(model, [QUESTIONS["topic"]], labelled(20))
        assert "head" not in calibration.questions[0].method


# ---- A model with an encoder --------------------------------------------------------------------


def test_the_evidence_of_both_models_is_added(
    both: Model, encoder: Model, tiny_model: Model
) -> None:
    first, second = tiny_model.decide(TEXT, QUESTIONS), encoder.decide(TEXT, QUESTIONS)
    decision = both.decide(TEXT, QUESTIONS)
    for name in QUESTIONS:
        e, s = (np.log(each[name].distribution) for each in (second, first))
        expected = softmax((0.5 * e + s).tolist())
        assert decision[name].distribution == pytest.approx(expected, abs=2e-3), name


def test_questions_that_cannot_be_compared_are_asked_as_usual(
    plain_model: Model, encoder_file: Path
) -> None:
    questions = [Predicate("Is it night?"), MultiLabel("Which?", TOPICS)]
    mood = Score("How happy?", {"bad": "sad and angry", "good": "happy and glad"})
    with Model(plain_model.path, library=plain_model.binding.library, encoder=encoder_file) as both:
        given, expected = (
            each.decide(TEXT, [*questions, mood], **F32) for each in (both, plain_model)
        )
    assert given[2].distribution == pytest.approx(expected[2].distribution, abs=2e-5)
    assert given[0].probability == pytest.approx(expected[0].probability, abs=2e-5)
    assert given[1].probabilities == pytest.approx(expected[1].probabilities, abs=2e-5)


def test_an_empty_input_has_no_similarity(plain_model: Model, encoder_file: Path) -> None:
    with Model(plain_model.path, library=plain_model.binding.library, encoder=encoder_file) as both:
        models = (both, plain_model)
        given, alone = (model.decide("", [QUESTIONS["topic"]], **F32)[0] for model in models)
    expected = softmax(np.log(alone.distribution).tolist())
    assert given.distribution == pytest.approx(expected, abs=2e-5)


def test_embeddings_are_those_of_the_encoder(both: Model, encoder: Model) -> None:
    assert both.embed(TEXT) @ encoder.embed(TEXT) > 0.9999


def test_describe_shows_both_models(both: Model, encoder_file: Path) -> None:
    assert both.describe()["encoder"]["path"] == str(encoder_file)
    assert "encoder encoder.gguf" in str(both.session)


def test_a_wrong_encoder_is_rejected(
    encoder_file: Path, tiny_model: Model, library: Library, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match="expected an embedding model or a reranker"):
        Model(tiny_model.path, library=library, encoder=tiny_model.path)
    with pytest.raises(InvalidArgumentError, match="encoder must be None"):
        Model(encoder_file, library=library, encoder=encoder_file)
    with pytest.raises(InvalidArgumentError, match="encoder"):
        Model(tiny_model.path, library=library, encoder=3)  # type: ignore[arg-type]
    nothing = tmp_path / "nothing.gguf"
    nothing.write_bytes(b"no model")
    with pytest.raises(Exception, match="nothing"):
        Model(tiny_model.path, library=library, encoder=nothing)


# ---- Calibrations -------------------------------------------------------------------------------


def labelled(n: int) -> list[tuple[str, str]]:
    words = {name: text.split() for name, text in WORDS.items()}
    names = list(words)
    return [(f"{words[names[i % 2]][i // 2 % 4]} {i}", names[i % 2]) for i in range(n)]


TOPIC = Choice("What is it about?", {name: f"a {text}" for name, text in WORDS.items()}, "topic")


def test_weights_and_constants_are_fitted_to_both_sources(
    both: Model, encoder: Model, tiny_model: Model
) -> None:
    rows = labelled(40)
    fitted = calibrate(both, [TOPIC], rows, method="weights")
    calibration = Calibration.from_text(fitted.to_text())
    (question,) = calibration.questions
    assert question.weights is not None and question.baseline is not None
    assert question.nll["weights"] < question.nll["none"] + 0.01
    text = rows[0][0]
    e, s = (np.log(model.decide(text, [TOPIC])[0].distribution) for model in (encoder, tiny_model))
    expected = question.weights[0] * e + question.weights[1] * s - np.array(question.baseline)
    given = both.decide(text, [TOPIC], calibration=calibration)
    assert given[0].distribution == pytest.approx(softmax(expected.tolist()), abs=5e-3)
    assert given.calibrated


@pytest.mark.parametrize("method", ["head", "head+weights"])
def test_a_head_on_an_embedding_reads_no_prompt(
    both: Model, encoder: Model, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding, and the similarity with a fitted weight, decide without the decoder."""
    sizes = {"decoder": 1000}
    monkeypatch.setattr(features, "_layer_weights", lambda session: sizes.get(session.kind, 1))
    monkeypatch.setattr(heads, "_select_group", lambda losses, costs, prefer: 0)
    rows = labelled(40)
    fitted = calibrate(both, [TOPIC], rows, method=method)
    calibration = Calibration.from_text(fitted.to_text())
    (question,) = calibration.questions
    head = question.head
    assert head is not None and [each.pooling for each in head.features] == ["embedding"]
    assert question.cost < 0.01
    monkeypatch.setattr(both.session.binding, "decide", None)
    given = both.decide(rows[0][0], [TOPIC], calibration=calibration)
    similarity = np.log(encoder.decide(rows[0][0], [TOPIC])[0].distribution)
    weight, of_options = (0.0, 0.0) if question.weights is None else question.weights
    assert (weight > 0, of_options) == (method == "head+weights", 0.0)
    vector = np.zeros(head.weights.shape[1])
    embedding = encoder.embed(rows[0][0])
    vector[: len(embedding)] = embedding
    expected = head.log_probabilities(vector[None, None], weight * similarity)[0]
    assert given[0].distribution == pytest.approx(np.exp(expected), abs=2e-3)
    assert given.usage.input_tokens == len(encoder.tokenize(rows[0][0], add_special=True))
    own = QuestionScores((OptionScores(np.zeros(2)),), (), vector[None], similarity)
    assert question.apply(own, "constrained") == pytest.approx(expected, abs=1e-2)


def test_an_embedding_is_one_more_feature_of_a_decoder(
    both: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [(Feature("mean", 1),), (Feature("mean", 2), Feature("last", 5))]
    monkeypatch.setattr(fitting, "candidate_features", lambda n_layers: groups)
    monkeypatch.setattr(heads, "_select_group", lambda losses, costs, prefer: len(losses) - 1)
    rows = labelled(40)
    calibration = calibrate(both, [TOPIC], rows, method="head+weights", prefer="right")
    (question,) = calibration.questions
    assert question.head is not None and question.weights is not None
    poolings = [each.pooling for each in question.head.features]
    assert poolings == ["mean", "last", "embedding"]
    assert question.cost == pytest.approx(1)
    assert 0 not in question.weights
    given = both.decide_many([text for text, _ in rows], [TOPIC], calibration=calibration)
    right = [each[0].value == name for each, (_, name) in zip(given, rows, strict=True)]
    assert np.mean(right) > 0.9
    both.decide("", [TOPIC], calibration=calibration)  # an empty input has no embedding


@pytest.mark.parametrize("method", ["auto", "batch", "batch+temperature", "weights", "head"])
def test_labels_of_an_encoder_are_calibrated(encoder: Model, method: Any) -> None:
    question = MultiLabel("Which?", TOPIC.choices, "topics")
    rows = labelled(40)
    calibration = calibrate(
        encoder, [question], [(text, [topic]) for text, topic in rows], method=method
    )
    for each in calibration.questions:
        assert each.method == method or method == "auto"
        assert each.nll[each.method] < each.nll.get("none", 2.0)
    found = encoder.decide_many([text for text, _ in rows], [question], calibration=calibration)
    right = [each[0].value == (topic,) for each, (_, topic) in zip(found, rows, strict=True)]
    assert sum(right) > 30 or method not in ("auto", "head")
    fitting = [topic in each[0].labels for each in found for topic in WORDS]
    assert 0 < sum(fitting) < len(fitting)


def test_labels_of_an_encoder_need_a_method_with_a_threshold(encoder: Model) -> None:
    question = MultiLabel("Which?", TOPIC.choices, "topics")
    rows = [(text, [topic]) for text, topic in labelled(20)]
    with pytest.raises(InvalidArgumentError, match="no threshold"):
        calibrate(encoder, [question], rows, method="temperature")


def test_the_method_weights_needs_an_encoder(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="opened with an encoder"):
        calibrate(tiny_model, [TOPIC], labelled(20), method="weights")


def test_a_predicate_without_descriptions_gets_a_head(encoder: Model) -> None:
    question = Predicate("Is it about money?")
    rows = [(text, topic == "money") for text, topic in labelled(40)]
    calibration = calibrate(encoder, [question], rows)
    assert calibration.questions[0].method == "head"
    with pytest.raises(InvalidArgumentError, match="if_true and if_false"):
        calibrate(encoder, [question], rows, method="batch")


def test_a_calibration_of_another_encoder_is_rejected(
    both: Model, encoder: Model, tiny_model: Model, tmp_path: Path, library: Library
) -> None:
    calibration = calibrate(both, [TOPIC], labelled(20))
    with pytest.raises(InvalidArgumentError, match="for another encoder: .* got None"):
        tiny_model.decide("a bill", [TOPIC], calibration=calibration)
    other = tmp_path / "other.gguf"
    write_bert(other, width=64)
    with (
        Model(tiny_model.path, library=library, encoder=other) as model,
        pytest.raises(InvalidArgumentError, match="for another encoder"),
    ):
        model.decide("a bill", [TOPIC], calibration=calibration)
    with Model(other, library=library) as wider:
        for fitted in (calibration, calibrate(encoder, [TOPIC], labelled(20), method="head")):
            with pytest.raises(InvalidArgumentError, match="for another model"):
                wider.decide("a bill", [TOPIC], calibration=fitted)


def test_the_prefixes_of_a_models_family_are_written(tmp_path: Path, library: Library) -> None:
    path = tmp_path / "nomic-embed-text-v1.5.gguf"
    write_bert(path)
    embed = SentenceEncoder(path).embed
    with Model(path, library=library) as model:
        given = model.decide(TEXT, [QUESTIONS["topic"]])
    expected = similarities(
        lambda text: embed(f"classification: {text}"), TEXT, list(TOPICS.items())
    )
    assert given[0].distribution == pytest.approx(softmax(expected), abs=2e-3)
