"""MiniLM decides as the reference implementation, and is right about topics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_encoder import SentenceEncoder
from similarity import similarities, softmax

from bench.answers.datasets import load
from eliza_ffi.decisions import Choice, Level, MultiLabel, Option, Score
from eliza_ffi.model import Model

pytestmark = pytest.mark.real

TICKETS = load("tickets")

Floats = NDArray[np.float64]


def test_decisions_are_those_of_the_reference(minilm: Model, reference: SentenceEncoder) -> None:
    assert isinstance(TICKETS.question, Choice)
    options = [(str(each.value), each.description) for each in TICKETS.question.choices]
    texts = [text for text, _ in TICKETS.test[:5]]
    for text, decision in zip(texts, minilm.decide_many(texts, [TICKETS.question]), strict=True):
        expected = softmax(similarities(reference.embed, text, options))
        assert decision[0].distribution == pytest.approx(expected, abs=0.01)


def test_an_encoder_is_right_about_topics_without_labels(minilm: Model) -> None:
    texts, topics = zip(*TICKETS.test, strict=True)
    found = minilm.decide_many(texts, [TICKETS.question])
    assert (
        np.mean([each[0].value == topic for each, topic in zip(found, topics, strict=True)]) > 0.7
    )


def test_thresholds_of_labels_come_from_the_inputs(minilm: Model) -> None:
    assert isinstance(TICKETS.question, Choice)
    texts, topics = zip(*TICKETS.test, strict=True)
    asked = MultiLabel("Which of these?", TICKETS.question.choices)
    found = minilm.decide_many(texts, [asked], prior="inputs")
    named = [
        (topic in each[0].labels, len(each[0].labels))
        for each, topic in zip(found, topics, strict=True)
    ]
    n_right, n_named = (sum(column) for column in zip(*named, strict=True))
    assert n_right / n_named > 0.55
    assert n_right / len(topics) > 0.5


def with_codes(question: Choice | Score) -> Choice | Score:
    """Return the question with codes in place of the names of its options."""
    if isinstance(question, Score):
        levels = [Level(f"K{i}_RT", each.description) for i, each in enumerate(question.levels)]
        return replace(question, levels=tuple(levels))
    options = [Option(f"Q{i}_TM", each.description) for i, each in enumerate(question.choices)]
    return replace(question, choices=tuple(options))


def accuracies(model: Model, n_rows: int) -> Floats:
    """Return the accuracy with names and with codes on each data set, shape [2, 5]."""
    found = []
    for name in ("trec", "spam", "sentiment", "ratings", "tickets"):
        data = load(name)
        assert isinstance(data.question, Choice | Score)
        rows = data.test[:n_rows]
        targets, texts = np.array(data.targets(rows)), [text for text, _ in rows]
        for asked in (data.question, with_codes(data.question)):
            decisions = model.decide_many(texts, [asked])
            answers = np.array([np.argmax(each[0].distribution) for each in decisions])
            found.append(np.mean(answers == targets))
    table: Floats = np.array(found).reshape(-1, 2).T
    return table


def test_codes_as_names_of_options_cost_an_encoder_little_accuracy(minilm: Model) -> None:
    named, coded = accuracies(minilm, 200)
    assert np.mean(named - coded) <= 0.05, (named, coded)


def test_a_decoder_reads_the_descriptions_of_codes(smollm2: Model) -> None:
    """With codes as answers, the accuracy was 0.35, and with names alone 0.59 (60 rows)."""
    named, coded = accuracies(smollm2, 40)
    assert np.mean(named) > 0.63, named
    assert np.mean(coded) > 0.57, coded


def test_both_read_the_descriptions_of_codes(smollm2: Model, minilm: Model) -> None:
    with Model(smollm2.path, encoder=minilm.path) as both:
        named, coded = accuracies(both, 40)
    assert np.mean(named - coded) <= 0.06, (named, coded)
