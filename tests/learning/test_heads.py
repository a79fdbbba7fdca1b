"""Heads, against the textbook formulas, and on data whose best classifier is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eliza_ffi.decisions.probabilities import log_softmax, tempered
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.features import Feature
from eliza_ffi.evidence.heads import Head, mixed
from eliza_ffi.learning import heads
from eliza_ffi.learning.heads import Group, candidate_features, fit_head, folds_of
from eliza_ffi.learning.weights import WEIGHT_DEVIATION, fit_weights

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


def fitted(penalty: float, rows: heads.Floats, targets: np.ndarray) -> tuple[Array, Array, Array]:
    """Return standardized rows, and the weights and biases of a ridge regression on them."""
    design = heads.Design(rows)
    weights, bias = design.fit(penalty, targets, 3)
    return design.x, weights * design.scale[:, None], bias + design.mean @ weights


def last(*layers: int) -> dict[Group, float]:
    """Return one group of features to fit a head to."""
    return {Group(tuple(Feature("last", layer) for layer in layers)): 1.0}


def nll_of(fit: heads.HeadFit, targets: np.ndarray) -> float:
    return float(-fit.log_probabilities[range(len(targets)), targets].mean())


@pytest.mark.parametrize("n", [40, 100])
def test_cross_validation_does_not_flatter_a_head_that_knows_nothing(n: int) -> None:
    reported = []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        rows = draw.normal(size=(3, n, 32)).astype(np.float32)
        targets = draw.permutation(np.arange(n) % 2)
        reported.append(nll_of(fit_head(rows, targets, last(1, 2, 3), 2), targets))
    assert np.mean(reported) > np.log(2) - 0.02


@pytest.mark.parametrize(("n", "n_embd"), [(40, 90), (90, 20)])
@pytest.mark.parametrize("penalty", [0.01, 10.0])
def test_ridge_regression_equals_its_formula(n: int, n_embd: int, penalty: float) -> None:
    rows, targets = blobs(n, n_embd, 3, seed=1)
    x, weights, bias = fitted(penalty, rows, targets)
    one_hot = np.eye(3)[targets]
    primal = np.linalg.solve(
        x.T @ x + penalty * n_embd * np.eye(n_embd), x.T @ (one_hot - one_hot.mean(0))
    )
    assert np.allclose(weights * heads.RIDGE_UNIT, primal, atol=1e-8)
    assert np.allclose(bias * heads.RIDGE_UNIT, one_hot.mean(0))


@pytest.mark.parametrize("n_of_last", [30, 1])
def test_a_head_separates_what_can_be_separated(n_of_last: int) -> None:
    """Also if an option has only one example."""
    rows, targets = blobs(120, 64, 4, seed=3)
    kept = np.flatnonzero((targets != 3) | (np.cumsum(targets == 3) <= n_of_last))
    fit = fit_head(rows[None, kept], targets[kept], last(7), 4)
    assert fit.head.features == (Feature("last", 7),)
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
    fit = fit_head(np.stack([noise[0], rows, noise[1]]), targets, last(2, 4, 6), 2)
    assert nll_of(fit, targets) < 0.2
    assert nll_of(fit_head(noise[:1], targets, last(2), 2), targets) > 0.65  # a coin has 0.69
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
    fit = fit_head(rows, targets, last(1), 2)
    p = np.exp(fit.log_probabilities)
    assert p[:, 0].mean() == pytest.approx(0.7, abs=0.05)
    entropy = -0.7 * np.log(0.7) - 0.3 * np.log(0.3)
    assert nll_of(fit, targets) == pytest.approx(entropy, abs=0.06)
    # Equal rows are no division by zero.
    targets = np.arange(20) % 2
    fit = fit_head(np.ones((1, 20, 8)), targets, last(1), 2)
    assert np.allclose(np.exp(fit.head.log_probabilities(np.ones((1, 1, 8)))), 0.5, atol=0.01)


def test_groups_of_features_begin_with_cheap_ones_and_end_with_all() -> None:
    def layers(group: tuple[Feature, ...], pooling: str) -> list[int]:
        return [each.layer for each in group if each.pooling == pooling]

    first, early, end, both = candidate_features(30)
    assert layers(first, "mean") == [6]
    assert layers(early, "mean") == [6, 12]
    assert layers(end, "last") == [18, 24, 30]
    assert not any(layers(each, "last") for each in (first, early))
    assert layers(both, "mean") == [6, 12, 30]
    assert both[3:] == end
    for n_layers in (1, 2, 5, 80):
        for group in candidate_features(n_layers):
            assert len(set(group)) == len(group) <= 6
            assert all(1 <= each.layer <= n_layers for each in group)


MEAN, LAST = (Feature("mean", 2),), (Feature("last", 8),)


def features_where(mean_decides: bool, last_decides: bool, seed: int) -> tuple[Any, np.ndarray]:
    """Draw states of the mean and of the last token of two classes. Some only have noise."""
    rows, targets = blobs(100, 24, 2, seed=seed)
    noise = np.random.default_rng(seed).normal(size=(2, 100, 24)).astype(np.float32)
    decides = (mean_decides, last_decides)
    return np.stack([rows if each else noise[i] for i, each in enumerate(decides)]), targets


@pytest.mark.parametrize("prefer", ["cheap", "right"])
def test_the_features_that_decide_are_selected(prefer: Any) -> None:
    groups = {Group(MEAN): 0.2, Group(LAST): 1.0}
    for mean_decides, expected in ((True, MEAN), (False, LAST)):
        states, targets = features_where(mean_decides, not mean_decides, seed=3)
        fit = fit_head(states, targets, groups, 2, prefer=prefer)
        assert fit.head.features == expected
        assert fit.cost == groups[Group(expected)]
        unseen, right = features_where(mean_decides, not mean_decides, seed=4)
        used = unseen[[int(expected is LAST)]]
        assert (fit.head.log_probabilities(used).argmax(1) == right).mean() > 0.95
        assert nll_of(fit, targets) < 0.3


def test_a_cheap_head_is_selected_unless_a_better_one_is_clearly_better() -> None:
    groups = {Group(MEAN + LAST): 1.0, Group(MEAN): 0.2}
    states, targets = features_where(True, True, seed=5)
    assert fit_head(states, targets, groups, 2).head.features == MEAN
    losses = [np.array([0.2, 0.4, 0.2, 0.4]), np.array([0.3, 0.4, 0.2, 0.4])]
    assert heads._select_group(losses, [1.0, 0.2], "cheap") == 1
    assert heads._select_group(losses, [1.0, 0.2], "right") == 0
    losses[1] = losses[0] + [0.2, 0.3, 0.2, 0.3]
    assert heads._select_group(losses, [1.0, 0.2], "cheap") == 0


def log_p_of(targets: np.ndarray, sure: float, seed: int) -> Array:
    """Draw log-probabilities of two options that prefer the right one, with noise."""
    draw = np.random.default_rng(seed).normal(size=(len(targets), 2))
    return log_softmax(sure * np.eye(2)[targets] + draw)


def test_sources_get_weights_beside_the_features() -> None:
    targets = np.arange(100) % 2
    noise = np.random.default_rng(4).normal(size=(1, 100, 24)).astype(np.float32)
    sources = np.stack([log_p_of(targets, 2, seed=1), log_p_of(targets, 0, seed=2)])
    useful, useless = fit_head(
        noise, targets, {Group(LAST, 2): 1.0}, 2, sources=sources
    ).source_weights
    assert useful > 0.6 > abs(useless)
    groups = {Group(LAST): 0.1, Group(LAST, 1): 0.5, Group(LAST, 2): 1.0}
    fit = fit_head(noise, targets, groups, 2, sources=sources)
    assert fit.source_weights[0] > 0.6
    assert fit.source_weights[1] == 0
    assert fit.cost == 0.5


def test_a_head_with_sources_predicts_as_the_sum_of_its_parts() -> None:
    """The slow way: one regression for each feature, and the weighted sum of log-probabilities."""
    rows, targets = blobs(80, 24, 3, seed=8)
    other, _ = blobs(80, 24, 3, seed=9)
    source = np.log(np.random.default_rng(3).dirichlet(np.ones(3), size=80))
    group = Group((Feature("mean", 1), Feature("last", 2)), 1)
    states = np.stack([rows, other])
    fit = fit_head(states, targets, {group: 1.0}, 3, sources=source[None])
    every = np.full(80, True)
    parts, scores = [], []
    for each in states:
        found = heads._fit_feature(
            heads._cross_validated(each, targets, 3, folds_of(targets)), targets, every
        )
        parts.append(found.log_p)
        weights, bias = heads.Design(each).fit(heads.RIDGE_PENALTIES[found.place], targets, 3)
        scores.append(tempered(each @ weights + bias, found.temperature))
    start = np.array([0.5, 0.5, heads.SOURCE_WEIGHT])
    spread = np.array([heads.FEATURE_DEVIATION] * 2 + [WEIGHT_DEVIATION])
    w, constants = fit_weights(np.stack([*parts, source]), targets, start, spread)
    expected = mixed(
        log_softmax(w[0] * scores[0] + w[1] * scores[1] + w[2] * source + constants), 80
    )
    found = fit.head.log_probabilities(states, fit.source_weights[0] * source)
    assert np.allclose(found, expected, atol=1e-4)


def test_a_head_is_written_and_read_unchanged() -> None:
    rows, targets = blobs(60, 16, 3, seed=11)
    head = fit_head(np.stack([rows, rows]), targets, last(1, 2), 3).head
    again = Head.from_dict(head.to_dict())
    assert again.features == head.features
    assert np.array_equal(again.weights, head.weights)
    assert np.array_equal(again.bias, head.bias)
    with pytest.raises(InvalidArgumentError, match="rows: expected finite"):
        fit_head(rows[None] * np.nan, targets, last(1), 3)


@pytest.mark.parametrize("seen", [1, 3])
def test_an_option_without_an_example_is_never_the_most_probable_one(seen: int) -> None:
    rows, targets = blobs(60, 16, 3, seed=11)
    inside = targets < seen
    fit = fit_head(rows[None, inside], targets[inside], last(1), 4)
    for log_p in (fit.log_probabilities, fit.head.log_probabilities(rows[None])):
        assert np.isfinite(log_p).all()
        assert log_p.argmax(axis=1).max() < seen
        assert np.exp(log_p).sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"features": []}, "features must be a list of different pairs"),
        ({"features": [["mean", 2], ["mean", 2]]}, "features must be a list of different pairs"),
        ({"features": [["max", 2]]}, "pooling must be one of"),
        ({"features": [["last", 0]]}, "layer must be a whole number of 1 or more"),
        ({"features": [["last"]]}, "features: expected 2 parts, got 1"),
        ({"features": "12"}, "features"),
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
    content = fit_head(rows[None], targets, last(1), 3).head.to_dict()
    with pytest.raises(InvalidArgumentError, match=reason):
        Head.from_dict({**content, **change})
