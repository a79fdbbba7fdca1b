"""Distances from the examples of a head, against the textbook formula."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.familiarity import Familiarity
from eliza_ffi.learning.familiarity import MAX_ROWS, PENALTY, fit_familiarity

N_EMBD = 30


def drawn(n: int, seed: int, moved: float = 0.0) -> Any:
    """Return two features of n inputs, shape [2, n, N_EMBD]."""
    scale = np.linspace(0.2, 5, N_EMBD)
    return (np.random.default_rng(seed).normal(size=(2, n, N_EMBD)) + moved) * scale + 10


OTHERS = drawn(40, 1000, moved=0.7)


def test_the_direction_is_that_of_ridge_regression() -> None:
    rows, new = drawn(60, 1), drawn(20, 2)
    expected = np.zeros(20)
    for example, other, each in zip(rows, OTHERS, new, strict=True):
        both = np.concatenate([example, other])
        scale = both.std(0)
        x, y = (both - both.mean(0)) / scale, np.arange(100) >= 60
        weights = np.linalg.solve(x.T @ x + PENALTY * N_EMBD * np.eye(N_EMBD), x.T @ (y - y.mean()))
        expected += (each - example.mean(0)) / scale @ weights
    fitted = fit_familiarity(rows, OTHERS, np.arange(60) % 5)
    assert fitted.distances(new) == pytest.approx(expected, abs=1e-5)


def test_a_twentieth_of_inputs_like_the_examples_is_marked() -> None:
    marked, far = [], []
    for seed in range(20):
        fitted = fit_familiarity(drawn(100, seed), OTHERS, np.arange(100) % 5)
        marked.append(fitted.distances(drawn(200, 100 + seed)) > fitted.threshold)
        far.append(fitted.distances(drawn(200, 200 + seed, moved=0.7)) > fitted.threshold)
    assert 0.03 < np.mean(marked) < 0.07
    assert np.mean(far) > 0.9


def test_examples_in_another_fold_than_their_copies_lower_the_threshold() -> None:
    rows, copied = drawn(60, 3), np.random.default_rng(0).permutation(180) % 60
    thresholds = [
        fit_familiarity(rows[:, copied], OTHERS, folds % 5).threshold
        for folds in (np.arange(180), copied)
    ]
    assert thresholds[0] < thresholds[1]
    many = np.arange(2 * MAX_ROWS) % 60
    assert np.isfinite(fit_familiarity(rows[:, many], OTHERS, many % 5).threshold)


def test_a_file_contains_the_same_distances() -> None:
    fitted = fit_familiarity(drawn(60, 4), OTHERS, np.arange(60) % 5)
    read = Familiarity.from_dict(json.loads(json.dumps(fitted.to_dict()))).shaped(2)
    new = drawn(20, 5)
    assert (read.distances(new) == fitted.distances(new)).all()
    assert read.threshold == fitted.threshold
    nothing = np.zeros((0, 1), np.float32)
    for wrong in (replace(fitted, mean=nothing), replace(fitted, weights=fitted.weights[:1])):
        with pytest.raises(InvalidArgumentError, match="familiarity"):
            wrong.shaped(2)
