r"""Linear classifiers on hidden states, fitted to labelled examples.

:mod:`eliza_ffi.evidence.heads` describes a head. Each of its features, such as the last token's
state at one layer, has a ridge regression of one-hot targets Y on standardized states X:
W = (X'X + aI)^-1 X'(Y - mean Y) = X'(XX' + aI)^-1 (Y - mean Y). If a hidden state has more values
than there are examples, which is usual, this needs only the n x n matrix of inner products. For
several a, a stratified cross-validation predicts all examples. The a whose predictions have the
lowest NLL, after a fitted temperature, is selected.

The log-probabilities of the features, and of other sources such as the model's own answers, are
then added with fitted weights and constants (:mod:`.weights`). This is stacking: the weights are
fitted to predictions of examples that the regressions have not seen.

Several groups of features are tried, and the group is selected by its NLL and its cost. The NLL
that is reported comes from a second cross-validation: for each fold, the a, the temperatures, the
weights and the group are selected with the other folds.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
sections 3.4.1 (ridge regression), 7.10 (cross-validation, and the rule of one standard error) and
8.8 (stacking). Guo et al., "On Calibration of Modern Neural Networks", arXiv:1706.04599.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lazy import lazy_property
from ..decisions.examples import UNLABELLED
from ..decisions.probabilities import Array, Floats, log_softmax, tempered
from ..errors import InvalidArgumentError
from ..evidence.features import Feature
from ..evidence.heads import Head, mixed
from .temperature import fit_temperature
from .weights import WEIGHT_DEVIATION, fit_weights

MAX_FOLDS = 5
"""The number of folds of cross-validation."""

FEATURE_DEVIATION = 0.25
"""The standard deviation of a feature's weight before the examples are seen."""

SOURCE_WEIGHT = 0.3
"""The default weight of a source in addition to a head, whose features have a total weight of 1."""

Preference = Literal["cheap", "right"]
"""Whether to select the best head, or the cheapest of the heads that are about as good."""

RIDGE_PENALTIES = tuple(10.0**exponent for exponent in range(-2, 5))
"""The values of a, divided by the number of values in a state."""

RIDGE_UNIT = 0.1
"""Predictions of one-hot targets are divided by this. Their temperature is then near 1."""


class Group(NamedTuple):
    """The features of a head, and how many of the other sources are added to it."""

    features: tuple[Feature, ...]
    n_sources: int = 0


@dataclass(frozen=True, eq=False)
class HeadFit:
    """A fitted head, and its predictions for the examples, by cross-validation.

    No part of the fit that predicts an example was fitted to, or selected with, this example.
    `source_weights` are the weights of the other sources, 0 for sources that the selected group
    does not have. `cost` is the group's cost.
    """

    head: Head
    log_probabilities: Array
    source_weights: Array
    cost: float = 1.0


def folds_of(targets: NDArray[np.intp], groups: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the fold of each example, or -1 if its right option is not known.

    Examples with the same number in `groups` get the same fold. The groups are sorted by the right
    option of their first example and then dealt to the folds in turn, so that all folds have about
    the same proportions of right options.
    """
    labelled = np.flatnonzero(targets != UNLABELLED)
    folds = np.full(len(targets), -1, dtype=np.intp)
    group = labelled if groups is None else groups[labelled]
    _, first, member = np.unique(group, return_index=True, return_inverse=True)
    if len(first) == 1:  # no fold could be predicted by others
        first = member = np.arange(len(labelled))
    dealt = np.empty(len(first), dtype=np.intp)
    order = np.lexsort((first, targets[labelled[first]]))
    dealt[order] = np.arange(len(first)) % MAX_FOLDS
    folds[labelled] = dealt[member]
    return folds


def candidate_features(n_layers: int) -> list[tuple[Feature, ...]]:
    """Return the groups of features of a decoder that heads are fitted to, cheap ones first.

    The groups are the mean at 20 % of the depth, this and the mean at 40 %, last tokens at 60, 80
    and 100 %, and all of these together with the mean at 100 %.
    """
    first, second = (Feature("mean", max(1, round(depth * n_layers))) for depth in (0.2, 0.4))
    last = [Feature("last", max(1, round(depth * n_layers))) for depth in (0.6, 0.8, 1.0)]
    groups = ((first,), (first, second), last, (first, second, Feature("mean", n_layers), *last))
    return list(dict.fromkeys(tuple(dict.fromkeys(each)) for each in groups))


def features_of(groups: Iterable[Group]) -> tuple[Feature, ...]:
    """Return the features of all groups without repetition."""
    return tuple(dict.fromkeys(each for group in groups for each in group.features))


def fit_head(
    rows: ArrayLike,
    targets: ArrayLike,
    groups: Mapping[Group, float],
    n_options: int,
    copies: NDArray[np.intp] | None = None,
    prefer: Preference = "cheap",
    sources: ArrayLike = (),
) -> HeadFit:
    """Fit a head to features of labelled examples, shape [n_features, n, n_embd].

    `groups` has the groups to try, with their costs. The rows are the features of all groups, in
    the order of :func:`features_of`. `copies` are as in :func:`folds_of`. `sources` has
    log-probabilities, shape [n_sources, n, n_options]. Without them, the head hardly ever selects
    an option without an example.
    """
    states = np.asarray(rows, dtype=np.float32)
    right = np.asarray(targets, dtype=np.intp)
    if not np.isfinite(states).all():
        raise InvalidArgumentError("rows: expected finite hidden states, got others")
    folds = folds_of(right, copies)
    by_feature = dict(zip(features_of(groups), states, strict=True))
    scores = {
        feature: _cross_validated(each, right, n_options, folds)
        for feature, each in by_feature.items()
    }
    others = np.asarray(sources, dtype=np.float64).reshape(-1, len(right), n_options)
    tried = [np.empty((len(right), n_options)) for _ in groups]
    for fold in np.unique(folds):
        inside = folds != fold
        fits = {feature: _fit_feature(each, right, inside) for feature, each in scores.items()}
        for group, log_p in zip(groups, tried, strict=True):
            log_p[~inside] = _stacked(group, fits, others, right, inside)[-1][~inside]
    losses = [-log_p[range(len(right)), right] for log_p in tried]
    costs = list(groups.values())
    predicted = np.empty_like(tried[0])
    for fold in np.unique(folds):
        inside = folds != fold  # each example is predicted by others alone
        best = _select_group([loss[inside] for loss in losses], costs, prefer)
        predicted[~inside] = tried[best][~inside]
    group = list(groups)[place := _select_group(losses, costs, prefer)]
    every = np.full(len(right), True)
    fits = {each: _fit_feature(scores[each], right, every) for each in group.features}
    stacked, constants, _ = _stacked(group, fits, others, right, every)
    regressions = [
        Design(by_feature[each]).fit(RIDGE_PENALTIES[fit.place], right, n_options)
        for each, fit in fits.items()
    ]
    scales = stacked[: len(fits)] / [fit.temperature for fit in fits.values()]
    weights = [w * scale for (w, _), scale in zip(regressions, scales, strict=True)]
    bias = constants + scales @ np.stack([each for _, each in regressions])
    head = Head(group.features, np.stack(weights).astype("f4"), bias.astype("f4"), len(right))
    source_weights = np.zeros(len(others))
    source_weights[: group.n_sources] = stacked[len(fits) :]
    return HeadFit(head, mixed(predicted, len(right)), source_weights, costs[place])


class _FeatureFit(NamedTuple):
    """The selected penalty of a feature, its temperature, and its log-probabilities."""

    place: int  # of the penalty
    temperature: float
    log_p: Array


def _fit_feature(scores: Array, targets: NDArray[np.intp], rows: NDArray[np.bool_]) -> _FeatureFit:
    """Select a penalty and fit a temperature to the scores of some examples."""
    right = targets[rows]
    temperatures = [fit_temperature(each[rows], right) for each in scores]
    losses = [
        -tempered(each[rows], temperature)[range(len(right)), right].mean()
        for each, temperature in zip(scores, temperatures, strict=True)
    ]
    place = int(np.argmin(losses))
    return _FeatureFit(place, temperatures[place], tempered(scores[place], temperatures[place]))


def _stacked(
    group: Group,
    fits: Mapping[Feature, _FeatureFit],
    sources: Array,
    targets: NDArray[np.intp],
    rows: NDArray[np.bool_],
) -> tuple[Array, Array, Array]:
    """Fit a group to some examples; return the weights, the constants and the log-probabilities."""
    parts = np.stack([*(fits[each].log_p for each in group.features), *sources[: group.n_sources]])
    n = len(group.features)
    start = np.array([1 / n] * n + [SOURCE_WEIGHT] * group.n_sources)
    spread = np.array([FEATURE_DEVIATION] * n + [WEIGHT_DEVIATION] * group.n_sources)
    weights, constants = fit_weights(parts[:, rows], targets[rows], start, spread)
    return weights, constants, log_softmax(np.tensordot(weights, parts, 1) + constants)


def _select_group(losses: Sequence[Array], costs: Sequence[float], prefer: Preference) -> int:
    """Return the index of the selected group of features.

    ``"right"`` selects the lowest mean loss. ``"cheap"`` selects the cheapest one that is at most
    one standard error above it: the standard error of the differences of the losses.
    """
    best = min(range(len(losses)), key=lambda i: float(losses[i].mean()))
    if prefer == "right":
        return best
    close = [i for i, loss in enumerate(losses) if is_close(loss, losses[best])]
    return min(close, key=lambda i: (costs[i], losses[i].mean()))


def is_close(loss: Array, best: Array) -> bool:
    """Return whether the mean loss is at most one standard error above the best.

    By Laplace's rule, n examples do not show a difference below 1/(n + 2) nats, either.
    """
    worse, n = loss - best, len(loss)
    return n < 2 or bool(worse.mean() <= max(worse.std(ddof=1) / np.sqrt(n), 1 / (n + 2)))


def _cross_validated(
    rows: Floats, targets: NDArray[np.intp], n_options: int, folds: NDArray[np.intp]
) -> Array:
    """Return scores, shape [n_penalties, n, n_options], by cross-validation."""
    scores = np.empty((len(RIDGE_PENALTIES), len(targets), n_options))
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        design, held_out = Design(rows[inside]), rows[outside].astype(np.float64)
        for place, penalty in enumerate(RIDGE_PENALTIES):
            weights, bias = design.fit(penalty, targets[inside], n_options)
            scores[place, outside] = held_out @ weights + bias
    return scores


class Design:
    """Standardized states x, shape [n, n_embd], and the smaller one of XX' and X'X."""

    def __init__(self, rows: NDArray[Any]) -> None:
        values = rows.astype(np.float64)
        self.mean, scale = values.mean(axis=0), values.std(axis=0)
        self.scale: Array = np.where(scale > 1e-6 * scale.max(initial=0), scale, 1.0)
        self.x: Array = (values - self.mean) / self.scale
        self.is_wide = len(values) <= values.shape[1]

    @lazy_property
    def gram(self) -> Array:
        """XX' if there are fewer states than values in a state, otherwise X'X."""
        x = self.x if self.is_wide else self.x.T
        product: Array = x @ x.T
        return product

    def fit(self, penalty: float, targets: NDArray[np.intp], n_options: int) -> tuple[Array, Array]:
        """Return weights, shape [n_embd, n_options], and biases, for states as they are."""
        member = np.eye(n_options)[targets]
        mean = member.mean(axis=0)
        found = self.solve(penalty * self.x.shape[1], member - mean) / RIDGE_UNIT
        weights = found / self.scale[:, None]
        return weights, mean / RIDGE_UNIT - self.mean @ weights

    def solve(self, penalty: float, y: Array) -> Array:
        """Return (X'X + penalty I)^-1 X'y, or the same in the dual form."""
        regular = self.gram + penalty * np.eye(len(self.gram))
        if self.is_wide:
            wide: Array = self.x.T @ np.linalg.solve(regular, y)
            return wide
        return np.linalg.solve(regular, self.x.T @ y)
