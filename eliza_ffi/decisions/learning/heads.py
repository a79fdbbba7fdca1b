r"""Linear classifiers on hidden states, fitted to labelled examples.

A *head* maps the hidden states h of a prompt's last token to log-probabilities of the options:
log softmax of the mean of h_l W_l + b_l over some layers l. Each layer selects one of these fits:

- **Ridge regression** of one-hot targets Y on standardized states X, in the dual form
  W = X'(XX' + aI)^-1 (Y - mean Y), for several a.
- **Linear discriminant analysis** with the covariance of Ledoit and Wolf,
  (1 - d) S + d m I, where S is the sample covariance within the classes, m the mean of its
  diagonal, and d the shrinkage that minimizes the expected squared error.

Both need only the n x n matrix of inner products, because a hidden state has more values than there
are examples. All fits predict all examples by stratified cross-validation, and a temperature is
fitted to these predictions. A layer selects the fit with the lowest NLL. With 60 to 300 examples,
the mean over all layers is more accurate than the layer that seems to be the best, and its
probabilities are better.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
sections 3.4.1 (ridge regression), 4.3 (discriminant analysis), 7.10 (cross-validation). Ledoit and
Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", Journal of
Multivariate Analysis 88, 2004. Guo et al., "On Calibration of Modern Neural Networks",
arXiv:1706.04599.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidArgumentError
from ..scoring import fit_temperature, log_softmax
from .fitting import MOST_FOLDS, folds_of

__all__ = ["LEAST_PER_CLASS", "Head", "HeadFit", "Kind", "candidate_layers", "fit_head"]

Kind = Literal["ridge", "lda"]
Array = NDArray[np.float64]
Floats = NDArray[np.float32]

LEAST_PER_CLASS = MOST_FOLDS
"""The minimum number of examples of each option: one for each fold."""

MOST_LAYERS = 8
"""The maximum number of layers, without the final norm's output."""

RIDGE_PENALTIES = tuple(10.0**exponent for exponent in range(-2, 5))
"""The values of a, relative to the mean of the diagonal of XX'/d, which standardizing makes 1."""

RIDGE_UNIT = 0.1
"""Predictions of one-hot targets are divided by this. Their temperature is then near 1."""


@dataclass(frozen=True, eq=False)
class Head:
    """A linear classifier on the hidden states of some layers.

    Attributes
    ----------
    layers : tuple of int
        The layers, as in :meth:`eliza_ffi.Model.hidden_states`.
    weights : array of float32, shape [n_layers, n_embd, n_options]
        With standardization, temperature and the mean over the layers included.
    bias : array of float32, shape [n_options]
    """

    layers: tuple[int, ...]
    weights: Floats
    bias: Floats

    def log_probabilities(self, rows: ArrayLike) -> Array:
        """Return log-probabilities, shape [n, n_options], for states [n_layers, n, n_embd]."""
        values = np.asarray(rows, dtype=np.float64)
        return log_softmax(np.einsum("lne,lek->nk", values, self.weights) + self.bias)


@dataclass(frozen=True, eq=False)
class HeadFit:
    """A fitted head, and how well it predicted examples that it was not fitted on.

    Attributes
    ----------
    head : Head
    log_probabilities : array of float, shape [n, n_options]
        The predictions for the examples, by cross-validation.
    nll : mapping of int to float
        For each layer alone, the mean of -log p of the right options in these predictions.
    kinds : mapping of int to str
        The selected fit of each layer.
    """

    head: Head
    log_probabilities: Array
    nll: dict[int, float]
    kinds: dict[int, Kind]


def candidate_layers(n_layers: int) -> list[int]:
    """Return at most 8 layers from 40 % to 90 % of the depth, and the final norm's output."""
    begin, end = max(1, round(0.4 * n_layers)), round(0.9 * n_layers)
    spread = np.linspace(begin, end, min(MOST_LAYERS, end - begin + 1)).round().astype(int)
    return sorted({*(int(layer) for layer in spread if layer < n_layers), n_layers})


def fit_head(rows: ArrayLike, targets: ArrayLike, layers: Sequence[int], n_options: int) -> HeadFit:
    """Fit a head to labelled examples.

    Parameters
    ----------
    rows
        The hidden states, shape [n_layers, n, n_embd].
    targets
        The index of the right option of each example, shape [n].
    layers
        The layers of `rows`.
    n_options
        The number of options.

    Raises
    ------
    InvalidArgumentError
        If a value is not finite, or an option has fewer than :data:`LEAST_PER_CLASS` examples.
    """
    states = np.asarray(rows, dtype=np.float32)
    right = np.asarray(targets, dtype=np.intp)
    if not np.isfinite(states).all():
        raise InvalidArgumentError("rows: expected finite hidden states, got others")
    counts = np.bincount(right, minlength=n_options)
    if counts.min() < LEAST_PER_CLASS:
        raise InvalidArgumentError(
            f"targets: expected at least {LEAST_PER_CLASS} examples of each option, got "
            f"{counts.min()} of option {counts.argmin()}"
        )
    fits = [_fit_layer(each, right, n_options) for each in states]
    predicted = log_softmax(np.mean([fit.predicted for fit in fits], axis=0))
    temperature = fit_temperature(predicted, right)
    scale = 1 / (temperature * len(fits))
    head = Head(
        tuple(layers),
        np.stack([fit.weights * scale for fit in fits]).astype(np.float32),
        (np.sum([fit.bias for fit in fits], axis=0) * scale).astype(np.float32),
    )
    every = range(len(right))
    return HeadFit(
        head,
        log_softmax(predicted / temperature),
        {layer: float(-fit.predicted[every, right].mean()) for layer, fit in _zip(layers, fits)},
        {layer: fit.kind for layer, fit in _zip(layers, fits)},
    )


@dataclass(frozen=True, eq=False)
class _LayerFit:
    """The fit of one layer: weights and biases, and log-probabilities by cross-validation."""

    kind: Kind
    weights: Array
    bias: Array
    predicted: Array


def _fit_layer(rows: Floats, targets: NDArray[np.intp], n_options: int) -> _LayerFit:
    every = range(len(targets))
    best: tuple[float, _Candidate, float, Array] | None = None
    for candidate, scores in _cross_validated(rows, targets, n_options):
        temperature = fit_temperature(scores, targets)
        predicted = log_softmax(scores / temperature)
        loss = float(-predicted[every, targets].mean())
        if best is None or loss < best[0]:
            best = loss, candidate, temperature, predicted
    assert best is not None
    _, candidate, temperature, predicted = best
    standard = _Standard.of(rows)
    weights, bias = candidate.fit(standard.apply(rows), targets, n_options)
    weights = weights / standard.scale[:, None]
    bias = bias - standard.mean @ weights
    return _LayerFit(candidate.kind, weights / temperature, bias / temperature, predicted)


def _zip(layers: Sequence[int], fits: Sequence[_LayerFit]) -> Iterator[tuple[int, _LayerFit]]:
    return zip(layers, fits, strict=True)


@dataclass(frozen=True, eq=False)
class _Standard:
    """The mean and the standard deviation of each value."""

    mean: Array
    scale: Array

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> _Standard:
        values = rows.astype(np.float64)
        scale = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(scale > 1e-6 * scale.max(initial=0), scale, 1.0))

    def apply(self, rows: NDArray[np.float32]) -> Array:
        values: Array = (rows.astype(np.float64) - self.mean) / self.scale
        return values


@dataclass(frozen=True)
class _Candidate:
    """A way to fit a head. `penalty` is the a of ridge regression."""

    kind: Kind
    penalty: float = 0.0

    def fit(self, x: Array, targets: NDArray[np.intp], n_options: int) -> tuple[Array, Array]:
        """Return weights of shape [n_embd, n_options], and biases."""
        dual, bias = self.fit_dual(x @ x.T, x, targets, n_options)
        return x.T @ dual, bias

    def fit_dual(
        self, gram: Array, x: Array, targets: NDArray[np.intp], n_options: int
    ) -> tuple[Array, Array]:
        """Return V with weights x'V, and biases. `gram` is xx'."""
        member = np.eye(n_options)[targets]
        if self.kind == "lda":
            return _fit_lda(gram, member, x.shape[1])
        mean = member.mean(axis=0)
        penalty = self.penalty * x.shape[1]
        dual = np.linalg.solve(gram + penalty * np.eye(len(x)), member - mean)
        return dual / RIDGE_UNIT, mean / RIDGE_UNIT


_CANDIDATES = (*(_Candidate("ridge", a) for a in RIDGE_PENALTIES), _Candidate("lda"))


def _fit_lda(gram: Array, member: Array, n_embd: int) -> tuple[Array, Array]:
    """Return the dual weights and the biases of linear discriminant analysis.

    Z = CX are the states minus the means of their classes. By the Woodbury identity, the inverse
    covariance times X'u is (X'u - Z' (cI + ZZ')^-1 ZX'u) / (dm), where c = ndm / (1 - d).
    """
    n = len(member)
    counts = member.sum(axis=0)
    means = member / counts  # the means of the classes are X' times these columns
    center = np.eye(n) - means @ member.T
    within = center @ gram @ center  # ZZ'
    m = max(float(np.trace(within)) / (n * n_embd), 1e-12)
    square = float((within**2).sum()) / n**2  # the sum of the squares of S
    distance = square - n_embd * m**2  # that of S - mI
    noise = (float((np.diag(within) ** 2).sum()) / n - square) / n  # its expected part in S
    d = min(max(noise / distance if distance > 0 else 1.0, 1e-3), 1.0)
    dual = means.copy()
    if d < 1:
        c = n * d * m / (1 - d)
        dual -= center @ np.linalg.solve(within + c * np.eye(n), center @ gram @ means)
    dual /= d * m
    bias = np.log(counts / n) - 0.5 * np.einsum("ik,ik->k", means, gram @ dual)
    return dual, bias


def _cross_validated(
    rows: NDArray[np.float32], targets: NDArray[np.intp], n_options: int
) -> Iterator[tuple[_Candidate, Array]]:
    """Yield each candidate with its scores of shape [n, n_options], by cross-validation."""
    folds = folds_of(targets)
    scores = {candidate: np.empty((len(targets), n_options)) for candidate in _CANDIDATES}
    for fold in range(MOST_FOLDS):
        inside, outside = folds != fold, folds == fold
        standard = _Standard.of(rows[inside])
        x, held_out = standard.apply(rows[inside]), standard.apply(rows[outside])
        gram, cross = x @ x.T, held_out @ x.T
        for candidate in _CANDIDATES:
            dual, bias = candidate.fit_dual(gram, x, targets[inside], n_options)
            scores[candidate][outside] = cross @ dual + bias
    yield from scores.items()
