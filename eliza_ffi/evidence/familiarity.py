"""Whether an input is like the examples that a head was fitted to.

The measure is the distance of the input's features from the mean of the examples, in the direction
of texts of all kinds. :mod:`eliza_ffi.learning.familiarity` fits the direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decisions.probabilities import Array, Floats
from ..errors import InvalidArgumentError
from .json_fields import JsonFields


@dataclass(frozen=True, eq=False)
class Familiarity(JsonFields):
    """A direction in the features of a head.

    Attributes
    ----------
    mean : array of float32, shape [n_features, n_embd]
        Of the examples.
    weights : array of float32, shape [n_features, n_embd]
    threshold : float
        Inputs with a larger distance are unfamiliar.
    """

    mean: Floats
    weights: Floats
    threshold: float

    def distances(self, rows: NDArray[Any]) -> Array:
        """Return the distances, shape [n], of features [n_features, n, n_embd]."""
        moved = np.asarray(rows, dtype=np.float64) - self.mean[:, None]
        distances: Array = np.einsum("lne,le->n", moved, self.weights)
        return distances

    def is_unfamiliar(self, hidden: Floats) -> bool:
        """Return whether an input with these features, [n_features, n_embd], is unfamiliar."""
        return bool(self.distances(hidden[:, None])[0] > self.threshold)

    def shaped(self, n_features: int) -> Familiarity:
        """Return the same, read from a file, with arrays of the right shape."""
        n, n_weights = self.mean.size, self.weights.size
        if not n or n % n_features or n_weights != n:
            raise InvalidArgumentError(
                f"familiarity: {n} means and {n_weights} weights do not belong to {n_features} "
                "features"
            )
        shape = n_features, -1
        return Familiarity(self.mean.reshape(shape), self.weights.reshape(shape), self.threshold)
