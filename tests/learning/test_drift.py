"""The distance of recent answers from those that a calibration was fitted on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel, calibrate
from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.decisions.learning.drift import MOST_RECENT, RecentAnswers, reasons_to_doubt_drift
from eliza_ffi.tables.row_decider import RowDecider

KIND = Choice("What is it about?", ["animal", "tool"], "kind")
TOPICS = MultiLabel("What is it about?", ["animal", "tool"], name="topics")
NAMES = {"animal": ["cat", "dog", "horse", "cow"], "tool": ["hammer", "saw", "drill", "nail"]}
FRAMES = ["I saw a {}.", "The {} is old.", "She likes this {}.", "Where is my {}?", "A {}!"]
ROWS = [(frame.format(name), kind) for frame in FRAMES for kind in NAMES for name in NAMES[kind]]


def decided(p: float, question: Any = KIND, abstains: bool = False) -> Decision:
    answers = [
        replace(answer_of(each, [p, 1 - p]), abstained=abstains) for each in expand(question)
    ]
    return Decision((collect(question, answers),), DecisionUsage(1, 0, 1, 0.0))


def test_a_table_reports_the_distance_of_its_answers(tiny_model: Model) -> None:
    fitted = calibrate(tiny_model, KIND, ROWS)
    assert fitted.questions[0].shares == pytest.approx((0.5, 0.5), abs=0.1)
    animals = [text for text, kind in ROWS if kind == "animal"]
    for inputs, is_far in ([text for text, _ in ROWS], False), (animals, True):
        decider = RowDecider(tiny_model, (KIND,), {"calibration": fitted}, None)
        answers = [decider.decide(text)["kind"] for text in inputs]
        found = (decider.drift() or {})["kind"]
        share = np.mean([answer.choice == "animal" for answer in answers])
        p = np.mean([answer.probability for answer in answers])
        assert found["recent"]["shares"] == pytest.approx({"animal": share, "tool": 1 - share})
        assert found["recent"]["probability"] == pytest.approx(p, abs=1e-4)
        assert found["n"] == len(inputs)
        distance = abs(share - fitted.questions[0].shares[0])
        assert found["distance"] == pytest.approx(distance, abs=1e-4)
        doubts = [each for each in decider.reasons_to_doubt() if "calibrate again" in each]
        assert len(doubts) == is_far
    assert RowDecider(tiny_model, (KIND,), {}, None).drift() is None


def test_the_distance_by_chance_is_the_mean_over_draws(tiny_model: Model) -> None:
    calibration = calibrate(tiny_model, KIND, ROWS, method="frequencies")
    (question,) = calibration.questions
    n, rng, found = question.n_examples, np.random.default_rng(0), []
    for _ in range(300):
        shares = tuple((rng.multinomial(n, [0.7, 0.3]) / n).tolist())
        recent = RecentAnswers(replace(calibration, questions=(replace(question, shares=shares),)))
        for is_animal in rng.random(80) < 0.7:
            recent.add(decided(0.9 if is_animal else 0.1))
        found.append(recent.drift()["kind"])
    by_chance, distances = (
        np.mean([each[key] for each in found]) for key in ("by_chance", "distance")
    )
    assert by_chance == pytest.approx(distances, rel=0.1)
    assert np.mean([bool(reasons_to_doubt_drift({"kind": each})) for each in found]) < 0.05


def test_recent_answers_weigh_more(tiny_model: Model) -> None:
    examples = [(text, [kind]) for text, kind in ROWS]
    calibration = calibrate(tiny_model, TOPICS, examples, method="frequencies")
    recent, every = RecentAnswers(calibration), RecentAnswers(calibration, keeps_all=True)
    for decision in (decided(0.9, TOPICS, abstains=True), decided(0.2, TOPICS)):
        for _ in range(2 * MOST_RECENT):
            recent.add(decision)
            every.add(decision)
    new, all_of_them = (each.drift()["topics: animal"] for each in (recent, every))
    assert all_of_them["recent"] == {"shares": {"true": 0.5, "false": 0.5}, "probability": 0.85}
    assert (all_of_them["n"], all_of_them["abstained"]) == (4 * MOST_RECENT, 0.5)
    assert new["recent"]["shares"]["false"] > 0.85 and new["abstained"] < 0.15
    assert new["n"] <= MOST_RECENT
