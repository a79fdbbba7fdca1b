"""Linear classifiers on the hidden states of a prompt.

A *head* maps hidden states h of an input, its features (:mod:`eliza_ffi.evidence.features`), to
log-probabilities of the options: log softmax of b + the sum of h_f W_f over some features f. The
log-probabilities of other sources can be added before the softmax. The result is mixed with the
uniform distribution, which gets the weight 1/(n + 2), where n is the number of examples. This is
Laplace's rule of succession: n right answers leave an error rate of about 1/(n + 2).
:mod:`eliza_ffi.learning.heads` fits heads.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_each, check_one_of, check_text, check_whole, wrong
from ..decisions.probabilities import Array, Floats, log_softmax
from ..errors import InvalidArgumentError
from .features import POOLINGS, Feature


@dataclass(frozen=True, eq=False)
class Head:
    """A linear classifier on some features of a prompt.

    Attributes
    ----------
    features : tuple of Feature
    weights : array of float32, shape [n_features, n_embd, n_options]
        With standardization, temperature and the weight of each feature included.
    bias : array of float32, shape [n_options]
    n_examples : int
        The number of examples that it was fitted to.
    """

    features: tuple[Feature, ...]
    weights: Floats
    bias: Floats
    n_examples: int

    def log_probabilities(self, rows: ArrayLike, more: ArrayLike = 0.0) -> Array:
        """Return log-probabilities, shape [n, n_options], for states [n_features, n, n_embd].

        `more` is added to the logits.
        """
        values = np.asarray(rows, dtype=np.float64)
        logits = np.einsum("lne,lek->nk", values, self.weights) + self.bias + more
        return mixed(log_softmax(logits), self.n_examples)

    def to_dict(self) -> dict[str, Any]:
        """Return the head as JSON data. The arrays are base64 of little-endian float32."""
        return {
            "features": [list(each) for each in self.features],
            "weights": packed(self.weights),
            "bias": packed(self.bias),
            "n_examples": self.n_examples,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Head:
        """Read the result of :meth:`to_dict`; raise KeyError if a field is missing."""
        features = tuple(map(_feature, check_each("features", data["features"], list, "a list")))
        if not features or len(set(features)) < len(features):
            raise wrong("features", "a list of different pairs", data["features"])
        bias, weights = (unpacked(name, data[name]) for name in ("bias", "weights"))
        if not bias.size or not weights.size or weights.size % (len(features) * bias.size):
            raise InvalidArgumentError(
                f"a head of {len(features)} features and {bias.size} options cannot have "
                f"{weights.size} weights"
            )
        n = check_whole("n_examples", data["n_examples"], 0)
        return cls(features, weights.reshape(len(features), -1, bias.size), bias, n)


def _feature(data: Sequence[Any]) -> Feature:
    if len(data) != 2:
        raise wrong("a feature", "a pooling and a layer", data)
    pooling: Any = check_one_of("the pooling", data[0], POOLINGS)
    return Feature(pooling, check_whole("the layer", data[1], 1))


def mixed(log_p: Array, n: int) -> Array:
    """Mix probabilities with the uniform distribution, which gets the weight 1/(n + 2)."""
    share = 1 / (n + 2)
    mixed: Array = np.logaddexp(log_p + np.log1p(-share), np.log(share / log_p.shape[-1]))
    return mixed


def packed(values: Floats) -> str:
    """Return base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode("ascii")


def unpacked(name: str, text: Any) -> Floats:
    """Read the result of :func:`packed`."""
    check_text(name, text)
    try:
        raw = base64.b64decode(text, validate=True)
        values = np.frombuffer(raw, "<f4").astype(np.float32)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: not base64 of float32: {error}") from None
    if not np.isfinite(values).all():
        raise InvalidArgumentError(f"{name}: expected finite numbers")
    return values
