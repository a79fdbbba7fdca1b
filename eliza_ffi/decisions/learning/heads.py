r"""Linear classifiers on hidden states, fitted to labelled examples.

A *head* maps the hidden states h of a prompt's last token to log-probabilities of the options:
log softmax of the mean of h_l W_l + b_l over some layers l. They are mixed with the uniform
distribution, which gets the weight 1/(n + 2), where n is the number of examples. This is Laplace's
rule of succession: n right answers leave an error rate of about 1/(n + 2). Each layer selects one
of these fits:

- **Ridge regression** of one-hot targets Y on standardized states X,
  W = (X'X + aI)^-1 X'(Y - mean Y) = X'(XX' + aI)^-1 (Y - mean Y), for several a.
- **Linear discriminant analysis** with the covariance of Ledoit and Wolf,
  (1 - d) S + d m I, where S is the sample covariance within the classes, m the mean of its
  diagonal, and d the shrinkage that minimizes the expected squared error.

If a hidden state has more values than there are examples, which is usual, both need only the n x n
matrix of inner products. All fits predict all examples by stratified cross-validation, and a
temperature is fitted to these predictions. A layer selects the fit with the lowest NLL. The NLL
that is reported comes from a second cross-validation: for each fold, the fits and temperatures are
selected with the other folds. With 60 to 300 examples, the mean over all layers is more accurate
than the layer that seems to be the best, and its probabilities are better.

References
----------
Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", second edition, 2009,
sections 3.4.1 (ridge regression), 4.3 (discriminant analysis), 7.10 (cross-validation). Ledoit and
Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", Journal of
Multivariate Analysis 88, 2004. Guo et al., "On Calibration of Modern Neural Networks",
arXiv:1706.04599.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._lazy import lazy_property
from ...checks import check_each, check_text, check_whole, wrong
from ...errors import InvalidArgumentError
from ..examples import UNTOLD
from ..scoring import Array, fit_temperature, log_softmax, tempered

Floats = NDArray[np.float32]
_Linear: TypeAlias = "tuple[Array, Array]"  # weights and biases

MOST_FOLDS = 5
"""The number of folds of cross-validation."""

MOST_LAYERS = 8
"""The maximum number of layers, without the final norm's output."""

RIDGE_PENALTIES = tuple(10.0**exponent for exponent in range(-2, 5))
"""The values of a, divided by the number of values in a state."""

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
    n_examples : int
        The number of examples that it was fitted to.
    """

    layers: tuple[int, ...]
    weights: Floats
    bias: Floats
    n_examples: int

    def log_probabilities(self, rows: ArrayLike) -> Array:
        """Return log-probabilities, shape [n, n_options], for states [n_layers, n, n_embd]."""
        values = np.asarray(rows, dtype=np.float64)
        logits = np.einsum("lne,lek->nk", values, self.weights) + self.bias
        return _mixed(log_softmax(logits), self.n_examples)

    def to_dict(self) -> dict[str, Any]:
        """Return the head as JSON data. The arrays are base64 of little-endian float32."""
        return {
            "layers": list(self.layers),
            "weights": _packed(self.weights),
            "bias": _packed(self.bias),
            "n_examples": self.n_examples,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Head:
        """Read the result of :meth:`to_dict`; raise KeyError if a field is missing."""
        layers = check_each("layers", data["layers"], int, "a whole number")
        if not layers or tuple(sorted(set(layers))) != layers or layers[0] < 1:
            raise wrong("layers", "ascending whole numbers from 1", layers)
        bias, weights = (_unpacked(name, data[name]) for name in ("bias", "weights"))
        if not bias.size or not weights.size or weights.size % (len(layers) * bias.size):
            raise InvalidArgumentError(
                f"a head of {len(layers)} layers and {bias.size} options cannot have "
                f"{weights.size} weights"
            )
        n = check_whole("n_examples", data["n_examples"], 0)
        return cls(layers, weights.reshape(len(layers), -1, bias.size), bias, n)


@dataclass(frozen=True, eq=False)
class HeadFit:
    """A fitted head, and its predictions for the examples, by cross-validation.

    Nothing that predicts an example was fitted to it or selected with it.
    """

    head: Head
    log_probabilities: Array


def folds_of(targets: NDArray[np.intp], groups: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the fold of each example, or -1 if its right option is not known.

    Examples with the same number in `groups` get the same fold. The groups are sorted by the right
    option of their first example and then dealt to the folds in turn, so that all folds have about
    the same proportions of right options.
    """
    labelled = np.flatnonzero(targets != UNTOLD)
    folds = np.full(len(targets), -1, dtype=np.intp)
    group = labelled if groups is None else groups[labelled]
    _, first, member = np.unique(group, return_index=True, return_inverse=True)
    if len(first) == 1:  # no fold could be predicted by others
        first = member = np.arange(len(labelled))
    dealt = np.empty(len(first), dtype=np.intp)
    order = np.lexsort((first, targets[labelled[first]]))
    dealt[order] = np.arange(len(first)) % MOST_FOLDS
    folds[labelled] = dealt[member]
    return folds


def candidate_layers(n_layers: int) -> list[int]:
    """Return at most 8 layers from 40 % to 90 % of the depth, and the final norm's output."""
    begin, end = max(1, round(0.4 * n_layers)), round(0.9 * n_layers)
    spread = np.linspace(begin, end, min(MOST_LAYERS, end - begin + 1)).round().astype(int)
    return sorted({*(int(layer) for layer in spread if layer < n_layers), n_layers})


def fit_head(
    rows: ArrayLike,
    targets: ArrayLike,
    layers: Sequence[int],
    n_options: int,
    groups: NDArray[np.intp] | None = None,
) -> HeadFit:
    """Fit a head to the hidden states of labelled examples, shape [n_layers, n, n_embd].

    `groups` are as in :func:`folds_of`. An option without an example is an error: the head would
    never select it.
    """
    states = np.asarray(rows, dtype=np.float32)
    right = np.asarray(targets, dtype=np.intp)
    if not np.isfinite(states).all():
        raise InvalidArgumentError("rows: expected finite hidden states, got others")
    counts = np.bincount(right, minlength=n_options)
    if not counts.all():
        raise InvalidArgumentError(
            f"targets: expected an example of each option, got none of option {counts.argmin()}"
        )
    folds = folds_of(right, groups)
    scores = [_cross_validated(each, right, n_options, folds) for each in states]
    chosen = _select(scores, right, np.full(len(right), True))
    fits = [
        one.fit(_Design(each), right, n_options)
        for each, one in zip(states, chosen.candidates, strict=True)
    ]
    scales = 1 / (np.array(chosen.temperatures) * chosen.temperature * len(fits))
    weights = np.stack([weights for weights, _ in fits]) * scales[:, None, None]
    bias = scales @ np.stack([bias for _, bias in fits])
    head = Head(tuple(layers), weights.astype("f4"), bias.astype("f4"), len(right))
    predicted = np.empty((len(right), n_options))
    for fold in range(MOST_FOLDS):
        others = _select(scores, right, folds != fold)  # each example is predicted by others alone
        predicted[folds == fold] = tempered(others.mean(scores), others.temperature)[folds == fold]
    return HeadFit(head, _mixed(predicted, len(right)))


def _mixed(log_p: Array, n: int) -> Array:
    """Mix probabilities with the uniform distribution, which gets the weight 1/(n + 2)."""
    share = 1 / (n + 2)
    mixed: Array = np.logaddexp(log_p + np.log1p(-share), np.log(share / log_p.shape[-1]))
    return mixed


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode("ascii")


def _unpacked(name: str, text: Any) -> Floats:
    check_text(name, text)
    try:
        raw = base64.b64decode(text, validate=True)
        values = np.frombuffer(raw, "<f4").astype(np.float32)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: not base64 of float32: {error}") from None
    if not np.isfinite(values).all():
        raise InvalidArgumentError(f"{name}: expected finite numbers")
    return values


@dataclass(frozen=True)
class _Selection:
    """The selected fit of each layer with its temperature, and the temperature of their mean."""

    candidates: tuple[_Candidate, ...]
    temperatures: tuple[float, ...]
    temperature: float = 1.0

    def mean(self, scores: Sequence[dict[_Candidate, Array]]) -> Array:
        chosen = zip(scores, self.candidates, self.temperatures, strict=True)
        return log_softmax(np.mean([tempered(each[one], t) for each, one, t in chosen], axis=0))


def _select(
    scores: Sequence[dict[_Candidate, Array]], targets: NDArray[np.intp], rows: NDArray[np.bool_]
) -> _Selection:
    """Select a fit for each layer, and fit all temperatures, to predictions of some examples."""
    right = targets[rows]

    def fitted(values: Array) -> tuple[float, float]:
        temperature = fit_temperature(values[rows], right)
        predicted = tempered(values[rows], temperature)
        return float(-predicted[range(len(right)), right].mean()), temperature

    losses = [{one: fitted(values) for one, values in each.items()} for each in scores]
    candidates = tuple(min(each, key=each.__getitem__) for each in losses)
    temperatures = tuple(each[one][1] for each, one in zip(losses, candidates, strict=True))
    selection = _Selection(candidates, temperatures)
    of_mean = fit_temperature(selection.mean(scores)[rows], right)
    return _Selection(candidates, temperatures, of_mean)


def _cross_validated(
    rows: Floats, targets: NDArray[np.intp], n_options: int, folds: NDArray[np.intp]
) -> dict[_Candidate, Array]:
    """Return the scores of each candidate, shape [n, n_options], by cross-validation."""
    scores = {candidate: np.empty((len(targets), n_options)) for candidate in _CANDIDATES}
    for fold in range(MOST_FOLDS):
        inside, outside = folds != fold, folds == fold
        design, held_out = _Design(rows[inside]), rows[outside].astype(np.float64)
        for candidate in _CANDIDATES:
            weights, bias = candidate.fit(design, targets[inside], n_options)
            scores[candidate][outside] = held_out @ weights + bias
    return scores


@dataclass(frozen=True)
class _Candidate:
    """A way to fit a head. `penalty` is the a of ridge regression."""

    kind: Literal["ridge", "lda"]
    penalty: float = 0.0

    def fit(self, design: _Design, targets: NDArray[np.intp], n_options: int) -> _Linear:
        """Return weights of shape [n_embd, n_options], and biases, for states as they are."""
        member = np.eye(n_options)[targets]
        if self.kind == "lda":
            weights, bias = _fit_lda(design, member)
        else:
            mean = member.mean(axis=0)
            weights = design.solve_ridge(self.penalty * design.x.shape[1], member - mean)
            weights, bias = weights / RIDGE_UNIT, mean / RIDGE_UNIT
        weights = weights / design.scale[:, None]
        return weights, bias - design.mean @ weights


_CANDIDATES = (*(_Candidate("ridge", a) for a in RIDGE_PENALTIES), _Candidate("lda"))


class _Design:
    """Standardized states x, shape [n, n_embd], and the smaller one of XX' and X'X."""

    def __init__(self, rows: Floats) -> None:
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

    def solve_ridge(self, penalty: float, y: Array) -> Array:
        """Return (X'X + penalty I)^-1 X'y, or the same in the dual form."""
        regular = self.gram + penalty * np.eye(len(self.gram))
        if self.is_wide:
            wide: Array = self.x.T @ np.linalg.solve(regular, y)
            return wide
        return np.linalg.solve(regular, self.x.T @ y)


def _fit_lda(design: _Design, member: Array) -> _Linear:
    """Return the weights and the biases of linear discriminant analysis.

    Z = CX are the states minus the means of their classes. By the Woodbury identity, the inverse
    covariance times u is (u - Z' (cI + ZZ')^-1 Zu) / (dm), where c = ndm / (1 - d).
    """
    x, (n, n_embd) = design.x, design.x.shape
    counts = member.sum(axis=0)
    means = x.T @ (member / np.maximum(counts, 1))  # a fold may lack a rare option
    z = x - member @ means.T
    within = z @ z.T if design.is_wide else z.T @ z
    m = max(float(np.trace(within)) / (n * n_embd), 1e-12)
    square = float((within**2).sum()) / n**2  # the sum of the squares of S
    distance = square - n_embd * m**2  # that of S - mI
    noise = (float(((z**2).sum(axis=1) ** 2).sum()) / n - square) / n  # its expected part in S
    d = min(max(noise / distance if distance > 0 else 1.0, 1e-3), 1.0)
    if not design.is_wide:
        weights = np.linalg.solve((1 - d) / n * within + d * m * np.eye(n_embd), means)
    elif d == 1:
        weights = means / m
    else:
        c = n * d * m / (1 - d)
        weights = (means - z.T @ np.linalg.solve(within + c * np.eye(n), z @ means)) / (d * m)
    bias = np.log((counts + 1) / (n + len(counts))) - 0.5 * (means * weights).sum(axis=0)
    return weights, bias
