r"""Decide from labelled rows which answers to trust, with a statistical guarantee.

:func:`certify` returns the lowest probability t so that among the answers with a probability of at
least t, at most a given share is wrong. :func:`conformal` returns sets of options that contain the
right option with a given probability.

Both guarantees need labelled rows that are drawn at random from the inputs that will come later.
The rows must not have been used for anything that changes the probabilities. If a temperature was
fitted on some rows, certify its answers on other rows.

Certified thresholds
--------------------
Let R(t) be the error rate, in the population, of the answers with a probability of at least t. For
each threshold t of a grid, the hypothesis "R(t) is larger than the risk" is rejected if the
Clopper-Pearson upper bound of R(t) is at most the risk. The result is the lowest threshold whose
hypothesis is rejected. The method is called Learn then Test. Three choices make it valid and
useful:

**The grid is fixed.** :data:`GRID` does not depend on the rows. For a fixed t, the rows above t are
independent draws from the population above t, so that the number of wrong answers among n of them
has the distribution Binomial(n, R(t)). Quantiles of the rows' own probabilities would be a more
convenient grid, but then the number of wrong answers depends on the error rates at exactly these
probabilities, and the binomial distribution is no longer exact, for example for a model that is
often wrong when it is most certain.

**The tests walk from high to low thresholds.** As long as hypotheses are rejected, the next one is
tested at the same level (the probability of a wrong rejection), without a correction for the number
of tests.

**There are several starting points.** If few rows are above the first threshold, its hypothesis
cannot be rejected, and a walk with a single start ends there. The total level
delta = 1 - confidence is therefore split equally over :data:`STARTS`. The walk begins with level 0.
At each starting point its level increases by the share of this point. At each hypothesis that is
not rejected its level returns to 0. This is the fallback procedure. When the first wrong rejection
happens, the level consists of shares that were added after the previous true hypothesis. Each share
counts for one true hypothesis only, so that the probabilities add up to at most delta.

Conformal sets
--------------
In split conformal prediction, the score of a row is 1 - p_y, where y is the right option. Let q be
the score with the rank ceil((n + 1)(1 - alpha)) among the n scores in ascending order. The set of a
new row is {k : p_k >= 1 - q}. The ranks of n + 1 exchangeable scores are uniform, so that the score
of the new row's right option is at most q with a probability of at least 1 - alpha.

References
----------
Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then Test: Calibrating Predictive Algorithms to
Achieve Risk Control", arXiv:2110.01052. Wiens and Dmitrienko, "The Fallback Procedure for
Evaluating a Single Family of Hypotheses", Journal of Biopharmaceutical Statistics 15(6), 2005.
Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
Binomial", Biometrika 26(4), 1934. Sadinle, Lei and Wasserman, "Least Ambiguous Set-Valued
Classifiers with Bounded Error Levels", arXiv:1609.00451. Lentz, "Generating Bessel Functions in Mie
Scattering Calculations Using Continued Fractions", Applied Optics 15(3), 1976.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...checks import check_kind, check_known, check_number, check_whole, naming, wrong
from ...errors import InvalidArgumentError

GRID = (
    *((10_000 - i) / 10_000 for i in range(1, 10)),
    *((1_000 - i) / 1_000 for i in range(1, 10)),
    *((100 - i) / 100 for i in range(1, 101)),
)
"""The thresholds that :func:`certify` tests, in this order: 0.9999, ..., 0.999, ..., 0.99, ..., 0.

The steps are smaller near 1 because the probabilities of many models are close to 1. The last
threshold, 0, stands for all answers."""

STARTS = (0.999, 0.99, 0.95, 0.8, 0.5, 0.0)
"""The thresholds of the grid at which the walk of :func:`certify` can begin.

They suit overconfident models, calibrated ones, and questions with many options, whose highest
probability is often below 0.8. Each additional starting point lowers the level of the others."""

MOST_NEEDED = 10_000_000
"""The largest number of labelled rows that :func:`certify` suggests."""

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CertifiedThreshold:
    """Hold the result of :func:`certify`.

    Attributes
    ----------
    threshold : float or None
        The lowest certified threshold. An answer is above it if its probability is at least
        `threshold`. None if no threshold can be certified.
    risk : float
        The highest share of wrong answers above the threshold.
    confidence : float
        The lowest probability, over draws of the labelled rows, that the risk is kept.
    n : int
        The number of labelled rows.
    n_above, n_wrong : int
        The number of labelled rows above the threshold, and how many of them are wrong; 0 without a
        threshold.
    coverage : float
        n_above / n, the share of labelled rows above the threshold; 0 without rows.
    needed : int or None
        If there is no threshold, the approximate number of labelled rows with which one could be
        certified, if the most certain answers kept their observed error rate. Without rows, the
        number that suffices if all answers are right. None if there is a threshold, or if no number
        up to :data:`MOST_NEEDED` is enough.
    """

    threshold: float | None
    risk: float
    confidence: float
    n: int
    n_above: int
    n_wrong: int
    coverage: float
    needed: int | None

    def __str__(self) -> str:
        confidence = f"with {_percent(self.confidence)} confidence"
        if self.threshold is not None:
            return (
                f"Trust answers with a probability of at least {self.threshold:g}: at most "
                f"{_percent(self.risk)} of them are wrong, {confidence}. In {self.n:,} labelled "
                f"rows, {self.n_above:,} answers ({_percent(self.coverage)}) were above the "
                f"threshold, and {self.n_wrong:,} of them were wrong."
            )
        if self.needed is None:
            advice = (
                "No practical number of rows is enough at the observed error rate of the most "
                "certain answers. More examples for the fit, or a better model, can lower it."
            )
        elif not self.n:
            advice = f"At least {self.needed:,} rows are needed."
        else:
            advice = (
                f"About {self.needed:,} rows are needed if the most certain answers keep their "
                "observed error rate."
            )
        return (
            f"No threshold was found above which at most {_percent(self.risk)} of the answers are "
            f"wrong, {confidence} ({self.n:,} labelled rows). {advice}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data that :meth:`from_dict` can read."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Any) -> CertifiedThreshold:
        """Read the fields; name one that is missing, unknown, damaged or contradictory."""
        data = _read_fields("a certified threshold", data, cls)
        threshold, needed = data["threshold"], data["needed"]
        n = check_whole("n", data["n"], 0)
        n_above = check_whole("n_above", data["n_above"], 0, 0 if threshold is None else n)
        coverage = check_number("coverage", data["coverage"], 0, 1)
        if coverage != _share(n_above, n):
            with naming("coverage"):
                raise InvalidArgumentError(
                    f"coverage must be n_above / n, {_share(n_above, n)}, got {coverage}"
                )
        if threshold is not None and needed is not None:
            raise wrong("needed", "None, because there is a threshold", needed)
        return cls(
            threshold=None if threshold is None else _fraction("threshold", threshold),
            risk=_fraction("risk", data["risk"]),
            confidence=inner_fraction("confidence", data["confidence"]),
            n=n,
            n_above=n_above,
            n_wrong=check_whole("n_wrong", data["n_wrong"], 0, n_above),
            coverage=float(coverage),
            needed=None if needed is None else check_whole("needed", needed, n + 1, MOST_NEEDED),
        )


@dataclass(frozen=True, kw_only=True)
class ConformalSets:
    """Hold the result of :func:`conformal`, which turns probabilities into sets of options.

    Attributes
    ----------
    threshold : float
        1 - q: the sets contain all options whose probability is at least `threshold`. It is 0 if
        there are too few labelled rows for `alpha`.
    alpha : float
        The highest probability that a set does not contain the right option.
    n : int
        The number of labelled rows.
    n_options : int
        The number of options of the question.
    """

    threshold: float
    alpha: float
    n: int
    n_options: int

    def sets(self, probabilities: ArrayLike) -> tuple[tuple[int, ...], ...]:
        """Return the indices of the options in the set of each row, which can be empty.

        `probabilities` has the shape [n, n_options].
        """
        inside = np.asarray(probabilities) >= self.threshold
        return tuple(tuple(np.flatnonzero(row).tolist()) for row in inside)

    def intervals(self, probabilities: ArrayLike) -> tuple[range, ...]:
        """Return the smallest range of options that contains the set of each row.

        This is for ordered options, such as the levels of a score. An empty set is ``range(0)``.
        """
        sets = self.sets(probabilities)
        return tuple(range(each[0], each[-1] + 1) if each else range(0) for each in sets)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data that :meth:`from_dict` can read."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Any) -> ConformalSets:
        """Read the fields from JSON data, as :meth:`CertifiedThreshold.from_dict` does."""
        data = _read_fields("a ConformalSets", data, cls)
        n, alpha = check_whole("n", data["n"], 0), inner_fraction("alpha", data["alpha"])
        threshold = _fraction("threshold", data["threshold"])
        if threshold and _rank(n, alpha) > n:
            raise wrong("threshold", f"0, because {n} rows are too few for alpha", threshold)
        return cls(
            threshold=threshold,
            alpha=alpha,
            n=n,
            n_options=check_whole("n_options", data["n_options"], 1),
        )


def certify(
    probabilities: ArrayLike, right: ArrayLike, *, risk: float = 0.05, confidence: float = 0.9
) -> CertifiedThreshold:
    """Return the lowest probability above which at most a given share of the answers is wrong.

    With a probability of at least `confidence` over draws of the labelled rows, the error rate of
    the population above the threshold is at most `risk`. `probabilities` has the probabilities of
    the chosen answers, shape [n], and `right` says whether each of them is right.
    """
    p, hit = np.asarray(probabilities, dtype=np.float64), np.asarray(right, dtype=bool)
    above, wrong_above = _count_above(p), _count_above(p[~hit])
    of_start = (1 - confidence) / len(STARTS)
    level, lowest = 0.0, None
    for i, threshold in enumerate(GRID):
        if threshold in STARTS:
            level += of_start
        if level and is_bounded(wrong_above[i], above[i], risk, level):
            lowest = i
        else:
            level = 0.0
    n_above = 0 if lowest is None else above[lowest]
    return CertifiedThreshold(
        threshold=None if lowest is None else GRID[lowest],
        risk=risk,
        confidence=confidence,
        n=len(p),
        n_above=n_above,
        n_wrong=0 if lowest is None else wrong_above[lowest],
        coverage=_share(n_above, len(p)),
        needed=_needed(len(p), above, wrong_above, risk, of_start) if lowest is None else None,
    )


def conformal(probabilities: ArrayLike, targets: ArrayLike, alpha: float = 0.1) -> ConformalSets:
    """Fit sets of options that contain the right option with a probability of 1 - alpha or more.

    The probability is over draws of the labelled rows and of one new row. It is an average over all
    inputs: for difficult inputs it can be lower. If n is smaller than 1 / alpha - 1, all sets
    contain all options. `probabilities` has the shape [n, n_options], and `targets` the index of
    the right option of each row.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(targets, dtype=np.intp)
    n, n_options = p.shape
    # Not the score 1 - p: rounding in 1 - q could exclude an option with exactly this probability.
    of_right = np.sort(p[np.arange(n), y])[::-1]
    rank = _rank(n, alpha)
    threshold = float(of_right[rank - 1]) if rank <= n else 0.0
    return ConformalSets(threshold=min(threshold, 1.0), alpha=alpha, n=n, n_options=n_options)


def is_bounded(n_wrong: float, n: float, rate: float, delta: float) -> bool:
    """Return whether the upper bound of an error rate by Clopper and Pearson is at most `rate`.

    It is if, at this rate, n_wrong or fewer wrong answers of n have at most the probability delta.
    """
    return rate >= 1 or _binomial_cdf(n_wrong, n, rate) <= delta


def _needed(
    n: int, above: list[int], wrong_above: list[int], risk: float, level: float
) -> int | None:
    """Return the smallest number of rows with which a walk could begin, or None.

    The share and the error rate of the rows above each starting point stay the observed ones.
    """
    starts = [GRID.index(start) for start in STARTS]
    observed = [(above[i] / n, wrong_above[i] / above[i]) for i in starts if above[i]]
    needed = []
    for share, rate in observed if n else [(1.0, 0.0)]:
        if rate >= risk:
            continue

        def is_enough(rows: int, share: float = share, rate: float = rate) -> bool:
            return is_bounded(rate * share * rows, share * rows, risk, level)

        if is_enough(MOST_NEEDED):
            needed.append(n + 1 + bisect_left(range(n + 1, MOST_NEEDED), True, key=is_enough))
    return min(needed, default=None)


def _count_above(probabilities: Array) -> list[int]:
    """Return the number of probabilities that are at least as large as each threshold."""
    n_below = np.searchsorted(np.sort(probabilities), GRID, side="left")
    counts: list[int] = (len(probabilities) - n_below).tolist()
    return counts


def _binomial_cdf(k: float, n: float, p: float) -> float:
    r"""Return the probability of at most k successes in n trials, each with probability p.

    .. math:: P(X \le k) = I_{1-p}(n - k, k + 1)

    The regularized incomplete beta function I also interpolates between whole numbers.
    """
    if k >= n or p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    a, b, x = n - k, k + 1, 1 - p
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log1p(-p) + b * math.log(p)
    )
    front = math.exp(log_front)
    # The continued fraction converges fast only below the mean of the beta distribution.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, p) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    r"""Return the continued fraction of the incomplete beta function (DLMF 8.17.22).

    .. math:: I_x(a, b) = \frac{x^a (1 - x)^b}{a B(a, b)}
              \cfrac{1}{1 + \cfrac{d_1}{1 + \cfrac{d_2}{1 + \cdots}}}

    It is evaluated by Lentz's method from front to back: the numerators' ratio c and the inverse of
    the denominators' ratio d are updated with each term. About sqrt(max(a, b)) terms are enough.
    """
    tiny = 1e-300  # in place of a zero denominator
    c = 1.0
    d = 1.0 / ((1.0 - (a + b) * x / (a + 1.0)) or tiny)
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / ((1.0 + term * d) or tiny)
            c = (1.0 + term / c) or tiny
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def _rank(n: int, alpha: float) -> int:
    """Return ceil((n + 1)(1 - alpha)) for the decimal number that alpha is written as.

    With floats, 1 - alpha is often rounded, and the product of a whole rank is not whole.
    """
    return math.ceil((n + 1) * (1 - Fraction(repr(alpha))))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _fraction(name: str, value: Any) -> float:
    return float(check_number(name, value, 0, 1))


def inner_fraction(name: str, value: Any) -> float:
    """Check that a value is a number above 0 and below 1."""
    number = _fraction(name, value)
    if not 0 < number < 1:
        raise wrong(name, "above 0 and below 1", value)
    return number


def _read_fields(what: str, data: Any, kind: type[Any]) -> Mapping[str, Any]:
    """Return a mapping after checking that it has exactly the fields of a dataclass."""
    found: Mapping[str, Any] = check_kind(what, data, Mapping, "an object")
    names = [each.name for each in fields(kind)]
    check_known(what, found, names)
    for name in names:
        if name not in found:
            raise InvalidArgumentError(f"the field {name!r} of {what} is missing")
    return found
