"""`bench.decisions`: all methods answer the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.deciding.cells import DecisionCell, measure_cell
from bench.deciding.ours import DecidingSetting, MaskedDecisions, OneByOne, OneByOneAnew, Together
from bench.deciding.workload import CODES, DecisionSubject, Questionnaire
from bench.methods import (
    LLGUIDANCE,
    ONE_BY_ONE,
    ONE_BY_ONE_ANEW,
    OURS,
    SERVER_GRAMMAR,
    SYSTEMONE,
    TOKENS_ALONE,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

SMALL = DecisionSubject("small", "pplx-decider", "f32", 64, 2, 4, is_decision_model=True)


@pytest.fixture(scope="module")
def decision_model(library: Library) -> Iterator[Model]:
    with Model(SMALL.path(), library=library, n_slots=1, n_ctx=2048, n_threads=1) as model:
        yield model


def setting_of(model: Model, n_questions: int, options: Sequence[str]) -> DecidingSetting:
    questionnaire = Questionnaire(model, n_questions, options)
    return DecidingSetting(model, questionnaire, longest=256, n_threads=1)


@pytest.mark.parametrize("way", [OneByOne, OneByOneAnew, MaskedDecisions])
def test_all_methods_give_the_same_answers(decision_model: Model, way: Any) -> None:
    setting = setting_of(decision_model, 3, ["pay", "close", "open", "move"])
    put = setting.questionnaire.put("please close the account")
    ours, other = Together(setting).decide(put), way(setting).decide(put)
    assert other.answers == ours.answers
    assert len(ours.answers or ()) == 3
    assert ours.passes is not None and other.passes is not None
    assert 0 < ours.passes <= other.passes
    if other.probabilities is not None:
        for row, expected in zip(other.probabilities, ours.probabilities or (), strict=True):
            assert row == pytest.approx(expected, abs=1e-2)


def test_a_cell_has_all_methods_and_names_the_missing_ones(tmp_path: Path) -> None:
    cell = DecisionCell("small", 16, 2, 3, CODES)
    measured = measure_cell(cell, SMALL, 2, 60.0, {}, tmp_path / "no-server")
    ours = {OURS, ONE_BY_ONE, ONE_BY_ONE_ANEW, TOKENS_ALONE, LLGUIDANCE}
    assert ours <= set(measured["ways"])
    assert set(measured["problems"]) >= {SYSTEMONE, SERVER_GRAMMAR}
    assert measured["ways"][OURS]["times_ours"] == (1.0, 1.0, 1.0)
    assert measured["ways"][OURS]["rounds"] == 2
    assert measured["ways"][LLGUIDANCE]["same_answers"] == 1.0
    assert measured["ways"][ONE_BY_ONE]["widest"] < 1e-2
    assert measured["ways"][TOKENS_ALONE]["same_answers"] is None
