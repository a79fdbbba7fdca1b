"""Many labels: a shortlist is asked, found by an encoder's similarity or by a search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_encoder import SentenceEncoder
from similarity import similarities
from write_decision_models import cached_decision_model

from eliza_ffi import CacheOptions, Model
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, question_from, question_to
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.option_prior import CONTENT_FREE, EVERYDAY
from eliza_ffi.learning import calibrate
from eliza_ffi.library.loading import Library
from eliza_ffi.tables import decide_table

F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
CLOSE = 2e-5
TEXT = "The truck with the parcel came at night."
TAGS = [f"{first}{last}" for first in ("Ash", "Oak", "Elm", "Fir") for last in range(100)]
QUESTION = MultiLabel("Is the town named?", TAGS, "towns", shortlist=4)


@pytest.fixture(scope="module")
def both(plain_model: Model, encoder_file: Path, library: Library) -> Iterator[Model]:
    with Model(plain_model.path, library=library, encoder=encoder_file, n_ctx=4096) as model:
        yield model


def asked_alone(model: Model, text: str, labels: Sequence[str]) -> Any:
    """Return the logarithms of yes and no for each label, without a prior or an encoder."""
    asked = [
        replace(each, label=None) for each in MultiLabel(QUESTION.instructions, labels).predicates
    ]
    found = model.decide(text, asked, prompt_order="input-first", prior="none", **F32)
    return np.log([each.distribution for each in found.answers])


def check_asked(model: Model, answer: Any, expected: list[str], shares: Any = None) -> None:
    """Compare the answers for a shortlist with predicates that are asked after the input.

    Their odds are divided by the prior of every hundredth label. `shares` has the logarithms of the
    encoder's odds.
    """
    assert [label for label, _ in answer.answers] == expected
    neutral = [
        np.exp([asked_alone(model, each, TAGS[::100]) for each in texts]).mean(axis=0)
        for texts in (CONTENT_FREE, EVERYDAY)
    ]
    prior = np.log(np.mean(neutral, axis=(0, 1)))
    logs = asked_alone(model, TEXT, expected) - prior
    odds = logs[:, 0] - logs[:, 1]
    if shares is not None:
        odds += 0.5 * shares
    for (_, found), value in zip(answer.answers, odds, strict=True):
        assert found.probability == pytest.approx(1 / (1 + math.exp(-value)), abs=1e-3)
    fitting = [label for label, each in answer.answers if each.probability >= 0.5]
    assert list(answer.labels) == fitting
    assert answer.n_labels == len(TAGS)


def test_a_search_finds_the_shortlist_of_a_model_without_an_encoder(plain_model: Model) -> None:
    (answer,) = plain_model.decide(TEXT, QUESTION, **F32).answers
    best = Choice(QUESTION.instructions, TAGS, top=4)
    (ranked,) = plain_model.decide(TEXT, best, prompt_order="question-first", **F32).answers
    check_asked(plain_model, answer, [label for label, _ in ranked.options])


def test_similarity_finds_the_shortlist_of_a_model_with_an_encoder_and_counts(
    both: Model, plain_model: Model, encoder_file: Path
) -> None:
    (answer,) = both.decide(TEXT, QUESTION, **F32).answers
    embed = SentenceEncoder(encoder_file).embed
    values = np.array(similarities(embed, TEXT, [(tag, None) for tag in TAGS]))
    asked = [TAGS.index(label) for label, _ in answer.answers]
    assert values[asked] == pytest.approx(np.sort(values)[::-1][:4], abs=2e-3 / 0.05)
    shares = values[asked] - np.log(np.exp(values).sum()) + math.log(4)
    check_asked(plain_model, answer, [TAGS[place] for place in asked], shares)


def test_no_prior_divides_the_answers_about_labels_if_none_is_wanted(plain_model: Model) -> None:
    (answer,) = plain_model.decide(TEXT, QUESTION, prior="none", **F32).answers
    labels = [label for label, _ in answer.answers]
    expected = np.exp(asked_alone(plain_model, TEXT, labels)[:, 0])
    found = [each.probability for _, each in answer.answers]
    assert found == pytest.approx(expected.tolist(), abs=CLOSE)


def test_many_labels_are_asked_beside_other_questions_and_about_many_inputs(
    plain_model: Model,
) -> None:
    questions = {"so": Predicate("Is it so?"), "towns": QUESTION, "not": Predicate("Or not?")}
    decision = plain_model.decide(TEXT, questions, **F32)
    assert list(decision) == ["so", "towns", "not"]
    (alone,) = plain_model.decide(TEXT, QUESTION, **F32).answers
    for one, other in zip(decision["towns"].answers, alone.answers, strict=True):
        assert one[0] == other[0]
        assert one[1].probability == pytest.approx(other[1].probability, abs=CLOSE)
    many = plain_model.decide_many([TEXT, "Oak20 it is."] * 11, questions, **F32)
    assert [each["towns"].n_labels for each in many] == [400] * 22
    assert many[0]["so"].probability == pytest.approx(decision["so"].probability, abs=CLOSE)


def test_none_is_an_answer(tiny_model: Model) -> None:
    tags = [f"{problem} card {i}" for problem in ("slow", "cold", "loud") for i in range(100)]
    question = MultiLabel("Is the message about this?", tags)
    (answer,) = tiny_model.decide("My parcel is lost.", question).answers
    assert all(each.probability < 0.5 for _, each in answer.answers) and len(answer.answers) == 5
    assert answer.labels == () and answer.value == () and not answer.abstained
    (unsure,) = tiny_model.decide("My parcel is lost.", question, min_probability=1.0).answers
    assert unsure.abstained and unsure.value is None


def test_a_table_has_the_labels_that_fit(plain_model: Model, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text\nI live in Oak20.\nNobody.\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    decide_table(plain_model, table, "text", {"towns": QUESTION}, out)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    expected = plain_model.decide_many(["I live in Oak20.", "Nobody."], {"towns": QUESTION})
    assert [row["towns"] for row in rows] == [list(each["towns"].labels) for each in expected]


def test_the_json_of_many_labels_keeps_the_shortlist() -> None:
    assert question_from(question_to(QUESTION)) == QUESTION
    assert question_to(QUESTION)["shortlist"] == 4
    assert "shortlist" not in question_to(MultiLabel("Is it?", ["a"]))


@pytest.mark.parametrize("shortlist", [0, 256, True, "4"])
def test_a_wrong_shortlist_is_an_error(shortlist: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="shortlist must be a whole number"):
        MultiLabel("Is it?", TAGS, shortlist=shortlist)


def test_what_needs_the_answers_for_all_labels_is_an_error(
    plain_model: Model, encoder_file: Path, library: Library
) -> None:
    expected = "the question 'towns': expected at most 255 labels, got 400"
    with pytest.raises(InvalidArgumentError, match=expected):
        calibrate(plain_model, QUESTION, [(TEXT, ["Ash1"])] * 4)
    with pytest.raises(InvalidArgumentError, match=expected):
        plain_model.decide(TEXT, QUESTION, explain=True)
    with pytest.raises(InvalidArgumentError, match=expected):
        plain_model.decide_many([TEXT] * 12, QUESTION, prior="inputs")
    with Model(encoder_file, library=library) as encoder:
        expected = "the 400 labels of towns need a model that generates text"
        with pytest.raises(InvalidArgumentError, match=expected):
            encoder.decide(TEXT, QUESTION)
    with Model(cached_decision_model("lev"), library=library) as model:
        expected = "expected at most 255 options for a decision model of type lev, got 400"
        with pytest.raises(InvalidArgumentError, match=expected):
            model.decide(TEXT, QUESTION)
