"""Metrics of answers, compared with hand-computed results and with reference implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from eliza_ffi.learning import metrics

ScoredExamples = tuple[NDArray[np.float64], NDArray[np.intp]]


@st.composite
def scored_examples(draw: st.DrawFn) -> ScoredExamples:
    """Return probabilities of n examples and k options, and the right options."""
    n, k = draw(st.integers(1, 30)), draw(st.integers(2, 6))
    weights = st.lists(st.integers(0, 20), min_size=k, max_size=k).filter(any)
    p = np.array(draw(st.lists(weights, min_size=n, max_size=n)), dtype=float)
    y = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return p / p.sum(axis=1, keepdims=True), np.array(y)


def test_nll_supports_probabilities_that_round_to_0() -> None:
    assert metrics.nll([[0.0, -2000.0]], [1]) == 2000.0


def test_a_bin_includes_its_upper_edge() -> None:
    diagram = metrics.reliability([0.0, 0.25, 0.5, 1.0, 1.0 + 1e-15], [True] * 5, bins=4)
    assert [each.n for each in diagram] == [2, 1, 0, 2]
    assert (diagram[2].probability, diagram[2].accuracy) == (None, None)


def test_an_answer_that_changes_in_any_order_is_one_flip() -> None:
    assert metrics.flip_rate([[0, 1, 2, 2], [0, 1, 0, 1], [0, 2, 0, 0]]) == 0.75
    assert metrics.flip_rate([[0, 1, 2]]) == 0.0


@given(scored_examples())
def test_brier_nll_and_level_error_match_a_loop(given_: ScoredExamples) -> None:
    p, y = given_
    n, k = p.shape
    squares = sum((p[j, c] - (c == y[j])) ** 2 for j in range(n) for c in range(k))
    assert metrics.brier(p, y) == pytest.approx(squares / n)
    smoothed = (p + 0.01) / (1 + 0.01 * k)
    surprise = -sum(math.log(smoothed[j, y[j]]) for j in range(n)) / n
    assert metrics.nll(np.log(smoothed), y) == pytest.approx(surprise)
    expected = [sum(i * p[j, i] for i in range(k)) for j in range(n)]
    gaps = sum(abs(expected[j] - y[j]) for j in range(n)) / n
    assert metrics.level_error(p, y) == pytest.approx(gaps)


@given(scored_examples())
def test_confusion_accuracy_and_macro_f1_match_a_loop(given_: ScoredExamples) -> None:
    p, y = given_
    n, k = p.shape
    answers = p.argmax(axis=1)
    matrix = metrics.confusion_matrix(answers, y, k)
    for c in range(k):
        for d in range(k):
            assert matrix[c, d] == sum(y[j] == c and answers[j] == d for j in range(n))
    scores = []
    for c in range(k):
        hits = sum(y[j] == c == answers[j] for j in range(n))
        missed = sum(y[j] == c != answers[j] for j in range(n))
        wrong = sum(answers[j] == c != y[j] for j in range(n))
        if hits + missed + wrong:
            scores.append(2 * hits / (2 * hits + missed + wrong))
    assert metrics.macro_f1(matrix) == pytest.approx(sum(scores) / len(scores))
    assert (answers == y).mean() == pytest.approx(matrix.trace() / n)


@given(scored_examples(), st.integers(1, 12))
def test_the_calibration_error_matches_a_loop_over_bins(given_: ScoredExamples, bins: int) -> None:
    p, y = given_
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    total = 0.0
    for b in range(bins):
        inside = (sure > b / bins) & (sure <= (b + 1) / bins)
        if inside.any():
            total += inside.sum() / len(y) * abs(right[inside].mean() - sure[inside].mean())
    diagram = metrics.reliability(sure, right, bins)
    assert metrics.calibration_error(diagram) == pytest.approx(total)
    assert sum(each.n for each in diagram) == len(y)


@given(scored_examples())
def test_coverage_matches_a_loop(given_: ScoredExamples) -> None:
    p, y = given_
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    for point in metrics.coverage(sure, right):
        kept = [bool(right[j]) for j in range(len(y)) if sure[j] >= point.threshold]
        assert point.coverage == pytest.approx(len(kept) / len(y))
        assert point.accuracy == (pytest.approx(sum(kept) / len(kept)) if kept else None)


@given(st.integers(0, 5), st.integers(0, 5))
def test_the_p_value_of_a_comparison_counts_outcomes_of_coins(gained: int, lost: int) -> None:
    outcomes = [sum(each) for each in itertools.product((0, 1), repeat=gained + lost)]
    extreme = [k for k in outcomes if abs(2 * k - gained - lost) >= abs(gained - lost)]
    assert metrics.mcnemar(gained, lost) == pytest.approx(len(extreme) / len(outcomes))
