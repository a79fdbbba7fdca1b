"""Statistics for tests of sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def softmax64(logits: ArrayLike) -> NDArray[np.float64]:
    """Return the softmax, computed by its definition in double precision."""
    values = np.asarray(logits, dtype=np.float64)
    powers = np.exp(values - values.max())
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def chi_square(counts: ArrayLike, expected: ArrayLike) -> tuple[float, int]:
    """Return Pearson's chi-square statistic and the degrees of freedom.

    All classes with fewer than 10 expected draws are merged into one.
    """
    observed, means = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    rare = means < 10
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        means = np.append(means[~rare], means[rare].sum())
    means, observed = means[means > 0], observed[means > 0]
    return float(((observed - means) ** 2 / means).sum()), len(means) - 1


def chi_square_limit(degrees: int, z: float = 3.72) -> float:
    """Return a quantile of the chi-square distribution.

    With z = 3.72, one of 10,000 random values exceeds it. The approximation is by Wilson and
    Hilferty, "The distribution of chi-square", PNAS 17(12), 1931; its error is at most 1 %.
    """
    if degrees == 0:
        return 1e-9
    ninth = 2 / (9 * degrees)
    return float(degrees * (1 - ninth + z * ninth**0.5) ** 3)


def assert_draws_follow(tokens: Sequence[int], probabilities: ArrayLike) -> None:
    """Check that tokens were drawn with these probabilities, and none with probability 0."""
    shares = np.asarray(probabilities, dtype=float)
    counts = np.bincount(tokens, minlength=len(shares))
    assert not counts[shares == 0].any()
    statistic, degrees = chi_square(counts, shares * len(tokens))
    assert statistic <= chi_square_limit(degrees)
