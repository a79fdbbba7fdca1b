"""Linear classifiers on the hidden states of a prompt.

A *head* maps hidden states h of an input, its features (:mod:`eliza_ffi.evidence.features`), to
log-probabilities of the options: log softmax of b + the sum of h_f W_f over some features f. The
log-probabilities of other sources can be added before the softmax. The result is mixed with the
uniform distribution, which gets the weight 1/(n + 2), where n is the number of examples. This is
Laplace's rule of succession: n right answers leave an error rate of about 1/(n + 2).
:mod:`eliza_ffi.learning.heads` fits heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import wrong
from ..decisions.probabilities import Array, Floats, log_softmax
from ..errors import InvalidArgumentError
from .features import Feature
from .json_fields import Count, JsonFields


@dataclass(frozen=True, eq=False)
class Head(JsonFields):
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
    n_examples: Count

    def log_probabilities(self, rows: ArrayLike, more: ArrayLike = 0.0) -> Array:
        """Return log-probabilities, shape [n, n_options], for states [n_features, n, n_embd].

        `more` is added to the logits.
        """
        values = np.asarray(rows, dtype=np.float64)
        logits = np.einsum("lne,lek->nk", values, self.weights) + self.bias + more
        return mixed(log_softmax(logits), self.n_examples)

    @classmethod
    def from_dict(cls, data: Any) -> Head:
        read = super().from_dict(data)
        features, weights, n_options = read.features, read.weights, read.bias.size
        if not features or len(set(features)) < len(features):
            raise wrong("features", "a list of different pairs", data["features"])
        if not n_options or not weights.size or weights.size % (len(features) * n_options):
            raise InvalidArgumentError(
                f"a head of {len(features)} features and {n_options} options cannot have "
                f"{weights.size} weights"
            )
        return replace(read, weights=weights.reshape(len(features), -1, n_options))


def mixed(log_p: Array, n: int) -> Array:
    """Mix probabilities with the uniform distribution, which gets the weight 1/(n + 2)."""
    share = 1 / (n + 2)
    mixed: Array = np.logaddexp(log_p + np.log1p(-share), np.log(share / log_p.shape[-1]))
    return mixed
