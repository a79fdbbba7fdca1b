"""Calibrations of questions that are asked in other words."""

from __future__ import annotations

import json
import logging
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.calibration import Calibration, _digest
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.rewording import N_INPUTS, Recentring, in_other_words, recentred
from eliza_ffi.evidence.scoring import QuestionScores
from eliza_ffi.learning import calibrate, evaluate, fitting
from eliza_ffi.tables import RowDecider, TableRow

KIND = Choice("What is it about?", {"animal": "it is alive", "tool": "for work"}, name="kind")
OTHER = Choice("Tool or animal?", {"animal": "a beast", "tool": "a thing"}, name="topic")
NAMES = {"animal": ["cat", "dog", "horse", "cow"], "tool": ["hammer", "saw", "drill", "nail"]}
FRAMES = ["I saw a {}.", "The {} is old.", "She likes this {} a lot.", "Where is my {}?", "A {}!"]
SEEN = [(frame.format(name), kind) for frame in FRAMES for kind in NAMES for name in NAMES[kind]]
TEXTS = [text for text, _ in SEEN]


@pytest.fixture(scope="module")
def fitted(tiny_model: Model) -> Calibration:
    """Return a calibration with a head on last tokens, which depend on the wording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "candidate_features", lambda n: [(Feature("last", n // 2),)])
        return calibrate(tiny_model, KIND, SEEN, method="head", risk=0.3)


def states(n: int, moved: float = 0.0) -> list[QuestionScores]:
    rows = np.random.default_rng(1).normal(size=(n, 1, 128)).astype("f4") + moved
    return [QuestionScores((), hidden=row) for row in rows]


def test_a_head_is_re_centred_on_the_mean_of_the_states(fitted: Calibration) -> None:
    """Subtracting the difference of the means from every state is the same."""
    reworded = in_other_words(fitted, [OTHER])
    (question,) = reworded.questions
    assert question.recentred == 0 and question.asked == OTHER
    assert question.threshold is None and question.sets is None
    inputs = states(50, moved=2.0)
    (centred,) = recentred(reworded, [inputs]).questions
    assert centred.recentred == 50
    assert centred.head is not None and question.head is not None
    assert centred.familiarity is not None and question.familiarity is not None
    rows = np.array([each.hidden for each in inputs], dtype=np.float64).transpose(1, 0, 2)
    moved = rows - rows.mean(axis=1, keepdims=True) + question.familiarity.mean[:, None]
    expected = question.head.log_probabilities(moved)
    assert centred.head.log_probabilities(rows) == pytest.approx(expected, abs=1e-4)
    expected = question.familiarity.distances(moved)
    assert centred.familiarity.distances(rows) == pytest.approx(expected, rel=1e-4)
    assert recentred(reworded, [inputs[: N_INPUTS - 1]]) == reworded
    assert recentred(fitted, [inputs]) == fitted


def test_the_order_of_the_first_inputs_changes_nothing(fitted: Calibration) -> None:
    numbered = list(enumerate(states(N_INPUTS)))
    digests = set()
    for seed in range(3):
        together = Recentring(in_other_words(fitted, [OTHER]))
        random.Random(seed).shuffle(numbered)
        texts, scores = zip(*((str(i), [each]) for i, each in numbered * 2), strict=True)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(together.add, texts, scores))
        together.add("another", states(1))
        digests.add(together.calibration.digest)
        assert together.calibration.questions[0].recentred == N_INPUTS
    assert len(digests) == 1


def test_other_options_are_another_question(tiny_model: Model, fitted: Calibration) -> None:
    turned, more = (Choice("Which?", names) for names in (["tool", "animal"], ["animal", "saw"]))
    for same in ([turned], [more], [replace(KIND, name="other")], [KIND, KIND]):
        assert in_other_words(fitted, same) is fitted
    with pytest.raises(InvalidArgumentError, match="another question: '0' differs in .*choices"):
        tiny_model.decide("A cow!", turned, calibration=fitted)


def test_different_single_inputs_re_centre_a_head(
    tiny_model: Model, fitted: Calibration, caplog: pytest.LogCaptureFixture
) -> None:
    asked = replace(OTHER, instructions="Is it a tool, or is it an animal?")
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        for text in [*TEXTS[: N_INPUTS - 1], *TEXTS[:3]]:
            assert tiny_model.decide(text, asked, calibration=fitted)["topic"].unfamiliar is None
        tiny_model.decide(TEXTS[N_INPUTS - 1], asked, calibration=replace(fitted))
    (warning,) = caplog.messages
    assert "another wording of 'topic'; 30 inputs re-centre its head" in warning
    answer = tiny_model.decide(TEXTS[0], asked, calibration=fitted)["topic"]
    assert answer.unfamiliar in (False, True)
    assert answer.certified is None and answer.prediction_set is None
    with pytest.raises(InvalidArgumentError, match="a certified threshold for these questions"):
        tiny_model.decide(TEXTS[0], asked, calibration=fitted, abstain="risk")


def test_batches_are_re_centred_before_their_first_answer(
    tiny_model: Model, fitted: Calibration, caplog: pytest.LogCaptureFixture
) -> None:
    alone = tiny_model.decide_many(TEXTS, OTHER, calibration=fitted, max_concurrency=1)
    together = tiny_model.decide_many(TEXTS, OTHER, calibration=fitted, max_concurrency=4)
    assert "its head is re-centred on 30 inputs" in caplog.messages[0]
    for one, many in zip(alone, together, strict=True):
        assert one[0].distribution == pytest.approx(many[0].distribution, abs=0.03)
        assert many[0].unfamiliar in (False, True)
    right = [each[0].value == kind for each, (_, kind) in zip(alone, SEEN, strict=True)]
    report = evaluate(tiny_model, OTHER, SEEN, calibration=fitted)
    assert np.mean(right) > 0.9 and report.overall.accuracy > 0.9
    decider = RowDecider(tiny_model, "x", [OTHER], {"calibration": fitted}, TEXTS[:N_INPUTS])
    assert decider.described["calibration"] == fitted.digest  # so that the job can resume
    (decided,) = decider.decide_rows([TableRow(1, "", {"x": "A bird!"})])
    assert decided.decision[0].unfamiliar in (False, True)


def test_calibrations_of_earlier_versions_know_no_unfamiliar_inputs(
    tiny_model: Model, fitted: Calibration, caplog: pytest.LogCaptureFixture
) -> None:
    file = json.loads(fitted.to_text())
    for question in file["calibration"]["questions"]:
        del question["familiarity"], question["recentred"]
    file["sha256"] = _digest(file["calibration"])
    earlier = Calibration.from_text(json.dumps(file))
    assert not earlier.knows_unfamiliar and fitted.knows_unfamiliar
    answers: list[Any] = [
        tiny_model.decide("A cow!", KIND, calibration=each)["kind"] for each in (earlier, fitted)
    ]
    assert [each.unfamiliar for each in answers] == [None, False]
    assert answers[0].distribution == answers[1].distribution
    assert caplog.messages == []
    tiny_model.decide("A cow!", OTHER, calibration=earlier)
    assert "another wording of 'topic'; measure it with evaluate" in caplog.messages[0]
