"""Heads, against the textbook formulas, and on data whose best classifier is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eliza_ffi.decisions.learning import heads
from eliza_ffi.decisions.learning.heads import Head, candidate_layers, fit_head, folds_of
from eliza_ffi.errors import InvalidArgumentError

Array = heads.Array


def blobs(
    n: int, n_embd: int, n_options: int, seed: int, distance: float = 3.0
) -> tuple[heads.Floats, np.ndarray]:
    """Draw rows around one centre for each option."""
    draw = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(n_options, n_embd))
    centers *= distance / np.linalg.norm(centers, axis=1, keepdims=True)
    targets = np.arange(n) % n_options
    scale = np.linspace(0.2, 5, n_embd)
    rows = (centers[targets] + draw.normal(size=(n, n_embd)) * 0.7) * scale + 10
    return rows.astype(np.float32), targets


def fitted(candidate: Any, rows: heads.Floats, targets: np.ndarray) -> tuple[Array, Array, Array]:
    """Return standardized rows, and the weights and biases that a candidate fits to them."""
    design = heads._Design(rows)
    weights, bias = candidate.fit(design, targets, 3)
    return design.x, weights * design.scale[:, None], bias + design.mean @ weights


def nll_of(fit: heads.HeadFit, targets: np.ndarray) -> float:
    return float(-fit.log_probabilities[range(len(targets)), targets].mean())


@pytest.mark.parametrize("n", [40, 100])
def test_cross_validation_does_not_flatter_a_head_that_knows_nothing(n: int) -> None:
    reported = []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        rows = draw.normal(size=(3, n, 32)).astype(np.float32)
        targets = draw.permutation(np.arange(n) % 2)
        reported.append(nll_of(fit_head(rows, targets, [1, 2, 3], 2), targets))
    assert np.mean(reported) > np.log(2) - 0.02


@pytest.mark.parametrize(("n", "n_embd"), [(40, 90), (90, 20)])
@pytest.mark.parametrize("penalty", [0.01, 10.0])
def test_ridge_regression_equals_its_formula(n: int, n_embd: int, penalty: float) -> None:
    rows, targets = blobs(n, n_embd, 3, seed=1)
    x, weights, bias = fitted(heads._Candidate("ridge", penalty), rows, targets)
    one_hot = np.eye(3)[targets]
    primal = np.linalg.solve(
        x.T @ x + penalty * n_embd * np.eye(n_embd), x.T @ (one_hot - one_hot.mean(0))
    )
    assert np.allclose(weights * heads.RIDGE_UNIT, primal, atol=1e-8)
    assert np.allclose(bias * heads.RIDGE_UNIT, one_hot.mean(0))


@pytest.mark.parametrize(("n", "n_embd"), [(40, 90), (90, 20), (300, 5)])
def test_discriminant_analysis_equals_its_formula(n: int, n_embd: int) -> None:
    rows, targets = blobs(n, n_embd, 3, seed=2)
    x, weights, bias = fitted(heads._Candidate("lda"), rows, targets)
    means = np.array([x[targets == k].mean(0) for k in range(3)])
    z = x - means[targets]
    sample = z.T @ z / n
    m = np.trace(sample) / n_embd
    distance = ((sample - m * np.eye(n_embd)) ** 2).sum()
    noise = sum(((np.outer(row, row) - sample) ** 2).sum() for row in z) / n**2
    shrinkage = min(max(noise / distance, 1e-3), 1.0)
    covariance = (1 - shrinkage) * sample + shrinkage * m * np.eye(n_embd)
    expected = np.linalg.solve(covariance, means.T)
    assert np.allclose(weights, expected, rtol=1e-6, atol=1e-8)
    prior = (np.bincount(targets) + 1) / (n + 3)
    own = np.log(prior) - 0.5 * np.einsum("kd,dk->k", means, expected)
    assert np.allclose(bias, own, rtol=1e-6)


@pytest.mark.parametrize("kind", ["ridge", "lda"])
@pytest.mark.parametrize("n_of_last", [30, 1])
def test_a_head_separates_what_can_be_separated(
    kind: str, n_of_last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if an option has only one example."""
    candidates = tuple(each for each in heads._CANDIDATES if each.kind == kind)
    monkeypatch.setattr(heads, "_CANDIDATES", candidates)
    rows, targets = blobs(120, 64, 4, seed=3)
    kept = np.flatnonzero((targets != 3) | (np.cumsum(targets == 3) <= n_of_last))
    fit = fit_head(rows[None, kept], targets[kept], [7], 4)
    assert fit.head.layers == (7,)
    assert np.isfinite(fit.log_probabilities).all()
    unseen, expected = blobs(400, 64, 4, seed=4)
    found = fit.head.log_probabilities(unseen[None])
    assert np.allclose(np.exp(found).sum(1), 1)
    frequent = np.flatnonzero(expected != 3 if n_of_last == 1 else expected >= 0)
    assert (found.argmax(1) == expected)[frequent].mean() > 0.95
    if n_of_last > 1:
        loss = -found[np.arange(400), expected].mean()
        assert loss == pytest.approx(nll_of(fit, targets), abs=0.1)


def test_layers_that_know_nothing_have_little_weight() -> None:
    rows, targets = blobs(100, 32, 2, seed=5)
    noise = np.random.default_rng(6).normal(size=(2, 100, 32)).astype(np.float32)
    fit = fit_head(np.stack([noise[0], rows, noise[1]]), targets, [2, 4, 6], 2)
    assert nll_of(fit, targets) < 0.2
    assert nll_of(fit_head(noise[:1], targets, [2], 2), targets) > 0.65  # a coin has 0.69
    unseen, expected = blobs(200, 32, 2, seed=7)
    noise = np.random.default_rng(8).normal(size=(2, 200, 32)).astype(np.float32)
    found = fit.head.log_probabilities(np.stack([noise[0], unseen, noise[1]]))
    assert (found.argmax(1) == expected).mean() > 0.95


def test_groups_stay_in_one_fold_and_without_copies_they_change_nothing() -> None:
    targets = np.random.default_rng(5).integers(-1, 3, 90)
    assert (folds_of(targets, np.arange(90)) == folds_of(targets)).all()
    groups = np.tile(np.arange(30), 3)
    folds = folds_of(targets, groups)
    assert ((folds == -1) == (targets == -1)).all()
    for group in range(30):
        assert len(set(folds[(groups == group) & (folds >= 0)])) <= 1
    assert set(folds) == {-1, 0, 1, 2, 3, 4}
    assert len(set(folds_of(np.zeros(10, np.intp), np.zeros(10, np.intp)))) == 5  # only one group


def test_useless_rows_give_the_shares_of_the_options() -> None:
    rows = np.random.default_rng(7).normal(size=(1, 150, 40)).astype(np.float32)
    targets = np.array([0] * 105 + [1] * 45)
    for fold in range(5):
        assert np.bincount(targets[folds_of(targets) == fold]).tolist() == [21, 9]
    fit = fit_head(rows, targets, [1], 2)
    p = np.exp(fit.log_probabilities)
    assert p[:, 0].mean() == pytest.approx(0.7, abs=0.05)
    entropy = -0.7 * np.log(0.7) - 0.3 * np.log(0.3)
    assert nll_of(fit, targets) == pytest.approx(entropy, abs=0.06)
    # Equal rows are no division by zero.
    targets = np.arange(20) % 2
    fit = fit_head(np.ones((1, 20, 8)), targets, [1], 2)
    assert np.allclose(np.exp(fit.head.log_probabilities(np.ones((1, 1, 8)))), 0.5, atol=0.01)


def test_candidate_layers_are_in_the_upper_half_and_end_with_the_norm() -> None:
    assert candidate_layers(30) == [12, 14, 16, 18, 21, 23, 25, 27, 30]
    assert candidate_layers(5) == [2, 3, 4, 5]
    assert candidate_layers(2) == [1, 2]
    assert candidate_layers(1) == [1]
    assert len(candidate_layers(80)) == 9


def test_a_head_is_written_and_read_unchanged() -> None:
    rows, targets = blobs(60, 16, 3, seed=11)
    head = fit_head(np.stack([rows, rows]), targets, [1, 2], 3).head
    again = Head.from_dict(head.to_dict())
    assert again.layers == head.layers
    assert np.array_equal(again.weights, head.weights)
    assert np.array_equal(again.bias, head.bias)
    with pytest.raises(InvalidArgumentError, match="rows: expected finite"):
        fit_head(rows[None] * np.nan, targets, [1], 3)
    with pytest.raises(InvalidArgumentError, match="got none of option 3"):
        fit_head(rows[None], targets, [1], 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layers": []}, "layers must be ascending whole numbers from 1"),
        ({"layers": [2, 1]}, "layers must be ascending"),
        ({"layers": "12"}, "layers"),
        ({"weights": "!"}, "weights: not base64 of float32"),
        ({"weights": "AAA="}, "weights: not base64 of float32"),
        ({"weights": "AAAAAA=="}, "3 options cannot have 1 weights"),
        ({"bias": "AACAfw=="}, "bias: expected finite numbers"),
        ({"bias": ""}, "0 options cannot have"),
        ({"bias": 5}, "bias must be"),
    ],
)
def test_a_damaged_head_is_rejected(change: dict[str, object], reason: str) -> None:
    rows, targets = blobs(60, 16, 3, seed=11)
    content = fit_head(rows[None], targets, [1], 3).head.to_dict()
    with pytest.raises(InvalidArgumentError, match=reason):
        Head.from_dict({**content, **change})
