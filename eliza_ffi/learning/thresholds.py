r"""Decide from labelled rows which answers to trust, with a statistical guarantee.

:func:`certify` returns the lowest probability t such that at most a given share of the answers with
a probability of at least t is wrong. :func:`conformal` returns sets of options that contain the
right option with a given probability.

Both guarantees need labelled rows that are drawn at random from the inputs that will come later.
The rows must not have been used for anything that changes the probabilities. If a temperature was
fitted on some rows, certify its answers on other rows.

Repeated inputs count as often as they occur: if one text makes up a quarter of the later inputs, it
makes up about a quarter of the rows. The guarantees are for the later inputs, not for the distinct
texts among them.

Costs
-----
If errors have different costs, an answer is above a threshold if its expected cost is low enough
(:meth:`.Costs.sure`), and R(t) is the mean cost of such answers, divided by the largest cost. Costs
from 0 to 1 are not binomial. Instead of the Clopper-Pearson bound, the hypothesis is tested with
the bound of Hoeffding and Bentkus (:func:`is_mean_bounded`), which Learn then Test proposes for
bounded losses. Everything else stays the same.

Parts
-----
A guarantee can also hold for several parts of the rows at the same time, for example for the rows
of each right option. A threshold is then certified only if the hypothesis is rejected for each
part, each at the full level: the hypothesis "the risk is too large for at least one part" is
wrongly rejected only if the test of this part is wrong (an intersection-union test; Berger 1982).

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
convenient grid. But the number of wrong answers would then depend on the error rates at exactly
these probabilities, and the binomial distribution would no longer be exact: for example, if a model
is often wrong when it is most certain.

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

Looks
-----
A person who labels rows until the certificate is good enough selects a lucky moment. Certificates
during labelling are therefore made only at preset numbers of rows (:func:`looks`), and delta is
split equally over them. With the promised probability, all certificates are right (union bound).
This holds whenever the person stops, although every label changes the model. A betting confidence
sequence (Waudby-Smith and Ramdas 2024) certified 5 to 15 % earlier in our simulations, but is valid
only for a model that stays the same. A single look at the end is not valid at all.

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
Binomial", Biometrika 26(4), 1934. Bates, Angelopoulos, Lei, Malik and Jordan, "Distribution-Free,
Risk-Controlling Prediction Sets", arXiv:2101.02703 (the bound of Hoeffding and Bentkus). Berger,
"Multiparameter Hypothesis Testing and Acceptance Sampling", Technometrics 24(4), 1982. Sadinle, Lei
and Wasserman, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels", arXiv:1609.00451.
Vovk, "Conditional Validity of Inductive Conformal Predictors", ACML 2012. Lentz, "Generating Bessel
Functions in Mie Scattering Calculations Using Continued Fractions", Applied Optics 15(3), 1976.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..decisions.probabilities import Array
from ..evidence.certificates import (
    MAX_NEEDED,
    Automation,
    CertifiedThreshold,
    ConformalSets,
    ThresholdTarget,
    rank_of,
    share_of,
)

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

N_DRAWS = 300
"""The number of draws for the interval of :func:`automation`."""

Bounded = Callable[[float, float, float, float], bool]
"""Whether an upper bound of a mean is at most `mean`: total, n, mean, delta."""

LOOK_RATIO, MAX_LOOK = 1.4, 1000
"""The ratio of the rows of two successive looks, and the most rows of any look but the first. With
a smaller ratio, each look has a smaller share of delta. With a larger ratio, good certificates come
later. In simulations, ratios from 1.25 to 2 certified at about the same time."""


def certify(
    probabilities: ArrayLike,
    right: ArrayLike,
    *,
    risk: float = 0.05,
    confidence: float = 0.9,
    parts: Sequence[ArrayLike] = (),
    at_looks: bool = False,
    target: ThresholdTarget = "accuracy",
    of_option: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    largest_cost: float = 1.0,
) -> CertifiedThreshold:
    """Return the lowest probability above which at most a given share of the answers is wrong.

    With a probability of at least `confidence` over draws of the labelled rows, the error rate of
    the population above the threshold is at most `risk`. `probabilities` has the probabilities of
    the chosen answers, shape [n], and `right` says whether each answer is right. `parts` has masks
    of rows, shape [n]: the error rate is at most `risk` for each of these parts, too.

    With the targets ``"precision"`` and ``"recall"``, only the rows that `of_option` marks count.
    For the precision, their answer is the option. For the recall, the option is right for these
    rows, and rows below the threshold are not missed.

    `costs` has the cost of each answer, which is at most `largest_cost`. `risk` then limits the
    mean cost instead of the share of wrong answers, and `probabilities` has the values of
    :meth:`.Costs.sure`.

    With `at_looks`, the rows are in the order in which they were labelled, and only those up to the
    last look count (:func:`looks`). The guarantee then holds for all looks together.
    """
    risk, confidence = float(risk), float(confidence)
    most, bounded = (risk, is_bounded) if costs is None else (risk / largest_cost, is_mean_bounded)
    p, hit = np.asarray(probabilities, dtype=np.float64), np.asarray(right, dtype=bool)
    masks = [np.full(len(p), True), *(np.asarray(part, dtype=bool) for part in parts)]
    losses = 1.0 - hit if costs is None else np.asarray(costs, dtype=np.float64) / largest_cost
    preset = looks(most, confidence) if at_looks else ()
    n = max((look for look in preset if look <= len(p)), default=len(p))
    above = _sum_above(p[:n])
    if of_option is not None:
        masks = [mask & np.asarray(of_option, dtype=bool) for mask in masks]
    p, hit, losses, masks = p[:n], hit[:n], losses[:n], [mask[:n] for mask in masks]
    counts = [(_sum_above(p[mask]), _sum_above(p[mask], losses[mask])) for mask in masks]
    if target == "recall":
        counts = [([every[-1]] * len(GRID), bad) for every, bad in counts]
    (counted, losses_above), wrong_above = counts[0], _sum_above(p[masks[0]], ~hit[masks[0]])
    of_start = (1 - confidence) / max(len(preset), 1) / len(STARTS)
    level, lowest = 0.0, None
    for i, threshold in enumerate(GRID):
        if threshold in STARTS:
            level += of_start
        if level and all(bounded(bad[i], every[i], most, level) for every, bad in counts):
            lowest = i
        else:
            level = 0.0
    n_above = 0 if lowest is None else int(above[lowest])
    needed, mean_cost = None, None
    if costs is not None and lowest is not None:
        mean_cost = losses_above[lowest] * largest_cost / n_above
    if lowest is None:
        each = [_needed(n, every, bad, most, of_start, bounded) for every, bad in counts]
        if None not in each:
            needed = max(more for more in each if more is not None)
        if needed is not None and at_looks:
            needed = next((look for look in preset if look >= needed), None)
    return CertifiedThreshold(
        threshold=None if lowest is None else GRID[lowest],
        risk=risk,
        confidence=confidence,
        n=n,
        n_above=n_above,
        n_wrong=0 if lowest is None else int(wrong_above[lowest]),
        coverage=share_of(n_above, n),
        needed=needed,
        target=target,
        n_counted=None if of_option is None else 0 if lowest is None else int(counted[lowest]),
        largest_cost=None if costs is None else largest_cost,
        mean_cost=mean_cost,
    )


def automation(probabilities: ArrayLike, right: ArrayLike, risk: float = 0.05) -> Automation:
    """Return the share of answers that need no person, if at most `risk` of these may be wrong.

    The parameters are as for :func:`certify`. The share is the largest one that these rows allow,
    and was therefore selected with knowledge of them, which flatters the model. The low end of the
    interval is therefore the share that can be certified with 95 % confidence; the high end is the
    95th percentile over :data:`N_DRAWS` draws with replacement (Efron and Tibshirani, "An
    Introduction to the Bootstrap", 1993).
    """
    p, hit = np.asarray(probabilities, dtype=np.float64), np.asarray(right, dtype=bool)
    order = np.argsort(-p, kind="stable")
    wrong, n = ~hit[order], len(p)
    is_last = np.append(p[order][1:] != p[order][:-1], True)  # of the rows with equal probability

    def share(weights: NDArray[np.intp]) -> float:
        n_above = weights.cumsum()
        is_enough = is_last & ((weights * wrong).cumsum() <= risk * n_above)
        return float(n_above[is_enough].max(initial=0)) / n

    rng = np.random.default_rng(0)
    drawn = [share(np.bincount(rng.integers(n, size=n), minlength=n)) for _ in range(N_DRAWS)]
    found = share(np.ones(n, dtype=np.intp))
    certified = certify(p, hit, risk=risk, confidence=0.95).coverage
    return Automation(
        accuracy=float(hit.mean()),
        share=found,
        low=min(certified, found),
        high=max(float(np.quantile(drawn, 0.95)), found),
        risk=risk,
    )


def looks(
    risk: float, confidence: float, n_starts: int = len(STARTS), most: int = MAX_LOOK
) -> tuple[int, ...]:
    """Return the numbers of labelled rows at which certificates are made during labelling.

    The first number is the lowest at which a walk with `n_starts` starting points can certify a
    threshold. Only the first number can be above `most`. `risk` and `confidence` are above 0 and
    below 1.
    """
    found: tuple[int, ...] = ()
    for n_looks in range(1, MAX_LOOK):
        level = (1 - confidence) / n_looks / n_starts
        sizes = [math.ceil(math.log(level) / math.log1p(-risk))]
        while len(sizes) < n_looks:
            sizes.append(math.ceil(sizes[-1] * LOOK_RATIO))
        if found and sizes[-1] > most:
            break
        found = tuple(sizes)
    return found


def certify_options(
    probabilities: ArrayLike,
    targets: ArrayLike,
    risks: Sequence[float],
    *,
    confidence: float = 0.9,
    parts: Sequence[ArrayLike] = (),
) -> CertifiedThreshold:
    """Return, for each option, a threshold above which its error rate is at most its risk.

    This is a target for the precision of each option. delta is split equally over the options, so
    that all thresholds hold together. The parameters are those of :func:`conformal` and
    :func:`certify`.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(targets, dtype=np.intp)
    answers, sure = p.argmax(axis=1), p.max(axis=1)
    n, found, needed = len(p), [], []
    for option, risk in enumerate(risks):
        rows = answers == option
        each = certify(
            sure[rows],
            y[rows] == option,
            risk=risk,
            confidence=1 - (1 - confidence) / len(risks),
            parts=[np.asarray(part, dtype=bool)[rows] for part in parts],
        )
        found.append(each)
        if each.needed is not None and (each.n or not n):
            needed.append(min(max(each.needed, each.needed * n // (each.n or 1)), MAX_NEEDED))
    thresholds = [each.threshold for each in found if each.threshold is not None]
    n_above = sum(each.n_above for each in found)
    return CertifiedThreshold(
        threshold=min(thresholds, default=None),
        risk=max(risks),
        confidence=confidence,
        n=n,
        n_above=n_above,
        n_wrong=sum(each.n_wrong for each in found),
        coverage=share_of(n_above, n),
        needed=None if thresholds else min(needed, default=None),
        of_options=tuple(each.threshold for each in found),
        option_risks=tuple(risks),
    )


def conformal(
    probabilities: ArrayLike,
    targets: ArrayLike,
    alpha: float = 0.1,
    *,
    each_option: bool = False,
) -> ConformalSets:
    """Fit sets of options that contain the right option with a probability of 1 - alpha or more.

    The probability is over draws of the labelled rows and of one new row. It is an average over all
    inputs: for difficult inputs it can be lower. If n is smaller than 1 / alpha - 1, all sets
    contain all options. `probabilities` has the shape [n, n_options], and `targets` the index of
    the right option of each row.

    With `each_option`, the probability is at least 1 - alpha for the inputs of each right option
    (class-conditional conformal prediction; Vovk 2012). Each option has a threshold of its own,
    from the rows for which it is right.
    """
    alpha = float(alpha)
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(targets, dtype=np.intp)
    n, n_options = p.shape
    # Not the score 1 - p: rounding in 1 - q could exclude an option with exactly this probability.
    of_right = p[np.arange(n), y]

    def threshold_of(found: Array) -> float:
        rank = rank_of(len(found), alpha)
        return min(float(np.sort(found)[::-1][rank - 1]), 1.0) if rank <= len(found) else 0.0

    if not each_option:
        return ConformalSets(
            threshold=threshold_of(of_right), alpha=alpha, n=n, n_options=n_options
        )
    each = tuple(threshold_of(of_right[y == option]) for option in range(n_options))
    return ConformalSets(
        threshold=min(each), alpha=alpha, n=n, n_options=n_options, of_options=each
    )


def is_bounded(n_wrong: float, n: float, rate: float, delta: float) -> bool:
    """Return whether the upper bound of an error rate by Clopper and Pearson is at most `rate`.

    This is so if, at this rate, the probability of at most n_wrong wrong answers is at most delta.
    """
    return rate >= 1 or _binomial_cdf(n_wrong, n, rate) <= delta


def is_mean_bounded(total: float, n: float, mean: float, delta: float) -> bool:
    """Return whether an upper bound of the mean of losses from 0 to 1 is at most `mean`.

    This is the bound of Hoeffding and Bentkus for n losses with this total.
    """
    if mean >= 1:
        return True
    if not n or total >= mean * n:
        return False
    x, n_up = total / n, math.ceil(round(total, 9))
    distance = (1 - x) * math.log((1 - x) / (1 - mean)) + (x * math.log(x / mean) if x else 0.0)
    return math.exp(-n * distance) <= delta or math.e * _binomial_cdf(n_up, n, mean) <= delta


def _needed(
    n: int,
    above: list[float],
    wrong_above: list[float],
    risk: float,
    level: float,
    bounded: Bounded,
) -> int | None:
    """Return the smallest number of rows with which a walk could begin, or None.

    This assumes that the share and the error rate of the rows above each starting point stay equal.
    """
    starts = [GRID.index(start) for start in STARTS]
    observed = [(above[i] / n, wrong_above[i] / above[i]) for i in starts if above[i]]
    each = [
        rows_needed(share, rate, risk, level, n + 1, bounded)
        for share, rate in (observed if n else [(1.0, 0.0)])
    ]
    return min((rows for rows in each if rows is not None), default=None)


def rows_needed(
    share: float,
    rate: float,
    risk: float,
    level: float,
    least: int = 0,
    bounded: Bounded = is_bounded,
) -> int | None:
    """Return how many rows, at least `least`, show that the error rate is at most `risk`.

    A share `share` of the rows counts, and a share `rate` of these is wrong. None = no number is
    enough.
    """

    def is_enough(rows: int) -> bool:
        return bounded(rate * share * rows, share * rows, risk, level)

    if rate >= risk or not is_enough(MAX_NEEDED):
        return None
    return least + bisect_left(range(least, MAX_NEEDED), True, key=is_enough)


def _sum_above(probabilities: Array, weights: Any = 1.0) -> list[float]:
    """Return, for each threshold, the sum of the weights of the rows at or above it."""
    order = np.argsort(-probabilities)
    sums = np.append(0.0, (np.ones(len(order)) * weights)[order].cumsum())
    n_below = np.searchsorted(probabilities[order[::-1]], GRID, side="left")
    found: list[float] = sums[len(order) - n_below].tolist()
    return found


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
