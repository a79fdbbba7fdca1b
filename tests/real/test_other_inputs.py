"""Inputs of another kind, and other wordings, with SmolLM2's head for TREC's questions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.answers.datasets import load
from eliza_ffi.learning import calibrate
from eliza_ffi.model import Model

pytestmark = pytest.mark.real


def test_other_inputs_are_marked_and_another_wording_costs_little(smollm2: Model) -> None:
    trec = load("trec")
    asked = trec.question
    other = replace(asked, instructions="Which category does the answer belong to?")
    fitted = calibrate(smollm2, asked, trec.train[:90], method="head", prefer="right")
    rows = trec.test[:60]
    texts, kinds = zip(*rows, strict=True)
    own, reworded = (
        [each[0] for each in smollm2.decide_many(texts, question, calibration=fitted)]
        for question in (asked, other)
    )
    right = [
        np.mean([answer.value == kind for answer, kind in zip(answers, kinds, strict=True)])
        for answers in (own, reworded)
    ]
    assert right[1] > right[0] - 0.06  # three rows; 0.03 on average over more
    assert np.mean([answer.unfamiliar for answer in own]) < 0.15
    foreign = [text for name in ("sentiment", "tickets") for text, _ in load(name).test[:15]]
    found = smollm2.decide_many(foreign, asked, calibration=fitted)
    assert np.mean([each[0].unfamiliar for each in found]) >= 0.9
