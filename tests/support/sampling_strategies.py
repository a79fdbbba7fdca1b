"""Logits, histories and statistics for the tests of sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

# Multiples of 1/8 make ties and sums that are exact.
tied_logits = st.lists(
    st.one_of(st.integers(-80, 80).map(lambda n: n / 8), st.just(-np.inf)), min_size=1, max_size=40
).filter(lambda logits: max(logits) > -np.inf)

distinct_logits = st.lists(st.integers(-4000, 4000), min_size=1, max_size=40, unique=True).map(
    lambda numbers: [n / 400 for n in numbers]
)

few_tokens = st.integers(0, 5)
histories = st.lists(few_tokens, max_size=24)


def softmax64(logits: ArrayLike) -> NDArray[np.float64]:
    """Return the softmax by its definition, in double precision."""
    values = np.asarray(logits, dtype=np.float64)
    powers = np.exp(values - values.max())
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def chi_square(counts: ArrayLike, expected: ArrayLike) -> tuple[float, int]:
    """Return Pearson's statistic and the degrees of freedom.

    Classes of fewer than 10 expected draws are put together.
    """
    seen, wanted = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    rare = wanted < 10
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    wanted, seen = wanted[wanted > 0], seen[wanted > 0]
    return float(((seen - wanted) ** 2 / wanted).sum()), len(wanted) - 1


def chi_square_limit(degrees: int, z: float = 3.72) -> float:
    """Return what the statistic exceeds once in 10,000 times (z = 3.72), by Wilson and Hilferty.

    "The distribution of chi-square", PNAS 17(12), 1931; good to 1 %.
    """
    if degrees == 0:
        return 1e-9
    ninth = 2 / (9 * degrees)
    return float(degrees * (1 - ninth + z * ninth**0.5) ** 3)


def assert_draws_follow(tokens: Sequence[int], probabilities: ArrayLike) -> None:
    """Check that tokens were drawn with these probabilities, and none that has none."""
    shares = np.asarray(probabilities, dtype=float)
    counts = np.bincount(tokens, minlength=len(shares))
    assert not counts[shares == 0].any()
    statistic, degrees = chi_square(counts, shares * len(tokens))
    assert statistic <= chi_square_limit(degrees)
