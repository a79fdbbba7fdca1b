"""Which answers to trust: certified thresholds, and sets of options that rarely miss the right one.

:mod:`eliza_ffi.learning.thresholds` finds both, and explains their guarantees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import check_number, check_whole, wrong
from ..decisions.probabilities import Array
from .costs import Cost, Costs
from .json_fields import Count, JsonFields, Share

ThresholdTarget = Literal["accuracy", "precision", "recall"]

MAX_NEEDED = 10_000_000
"""The largest number of labelled rows that :func:`certify` suggests."""


@dataclass(frozen=True, kw_only=True)
class CertifiedThreshold(JsonFields):
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
        up to :data:`MAX_NEEDED` is enough.
    frequencies : tuple of float, or None
        If the risk is kept for each right option, how frequent the options are. The probabilities
        are divided by these numbers before they are compared with the threshold. Otherwise few
        answers are sure enough if their right option is rare. None if the risk is kept on average.
    of_options : tuple of (float or None), or None
        If options have risks of their own, the threshold of the answers with each option; None for
        an option without one. `threshold` is the lowest, and `risk` the highest risk.
    option_risks : tuple of float, or None
        The risk of each of these options.
    target : str
        What `risk` limits: with ``"accuracy"``, the share of wrong answers above the threshold;
        with ``"precision"``, that share among the answers with an option; with ``"recall"``, the
        share of the inputs for which an option is right that get another answer above the
        threshold.
    option : str or None
        The option of such a target.
    n_counted : int or None
        The number of labelled rows that count for this option. `n_wrong` of these miss the target.
    largest_cost : float or None
        With costs, the largest one. Then `risk` is the highest mean cost of the answers above the
        threshold, and an answer is above it if 1 - its expected cost / `largest_cost` is at least
        `threshold`.
    mean_cost : float or None
        With costs, the mean cost of the answers above the threshold.
    """

    threshold: Share | None
    risk: Cost
    confidence: Share
    n: Count
    n_above: Count
    n_wrong: Count
    coverage: Share
    needed: Count | None
    frequencies: tuple[Share, ...] | None = None
    of_options: tuple[Share | None, ...] | None = None
    option_risks: tuple[Share, ...] | None = None
    target: ThresholdTarget = "accuracy"
    option: str | None = None
    n_counted: Count | None = None
    largest_cost: Cost | None = None
    mean_cost: Cost | None = None

    @property
    def most_expected(self) -> float | None:
        """The highest expected cost of an answer above the threshold; None without costs."""
        if self.threshold is None or self.largest_cost is None:
            return None
        return (1 - self.threshold) * self.largest_cost

    def certifies(self, probabilities: ArrayLike, costs: Costs | None = None) -> NDArray[np.bool_]:
        """Return whether the answers are above the threshold, shape [n].

        `probabilities` has the shape [n, n_options]. `costs` are the calibration's costs.
        """
        if self.threshold is None:
            return np.full(len(np.asarray(probabilities)), False)
        least: Any = self.threshold
        if self.of_options is not None:
            of_options = [math.inf if each is None else each for each in self.of_options]
            least = np.array(of_options)[np.asarray(probabilities).argmax(axis=1)]
        sure = of_answers(probabilities, self.frequencies)
        if costs is not None:
            sure = costs.sure(probabilities)
        certified: NDArray[np.bool_] = sure >= least
        return certified

    def __str__(self) -> str:
        confidence = f"with {_percent(self.confidence)} confidence"
        if self.threshold is not None:
            divided = "" if self.frequencies is None else ", divided by the options' frequencies,"
            each = "" if self.frequencies is None else ", whichever option is right"
            least = f"{self.threshold:g}"
            if self.of_options is not None:
                thresholds = ["none" if t is None else f"{t:g}" for t in self.of_options]
                least = f"the threshold of their option ({', '.join(thresholds)})"
            found = f"{self.n_wrong:,} of them were wrong"
            if self.n_counted is not None:
                found = f"{self.n_wrong:,} of {self.n_counted:,} rows missed the target"
            which = f"a probability{divided} of at least {least}"
            if self.mean_cost is not None:
                which = f"an expected cost of at most {self.most_expected:.3g}"
                found = f"they cost {self.mean_cost:.3g} on average"
            return (
                f"Trust answers with {which}: "
                f"{self._promise('them')}{each}, {confidence}. In {self.n:,} labelled rows, "
                f"{self.n_above:,} answers ({_percent(self.coverage)}) were above the threshold, "
                f"and {found}."
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
            f"No threshold was found above which {self._promise('the answers')}, {confidence} "
            f"({self.n:,} labelled rows). {advice}"
        )

    def _promise(self, answers: str) -> str:
        if self.largest_cost is not None:
            return f"{answers} cost at most {self.risk:g} on average"
        most = f"at most {_percent(self.risk)} of"
        if self.target == "recall":
            return f"{most} the inputs for which {self.option!r} is right get another answer"
        if self.target == "precision":
            answers = f"the answers {self.option!r}"
        return f"{most} {answers} are wrong"

    def _check(self) -> None:
        check_whole("n_above", self.n_above, 0, 0 if self.threshold is None else self.n)
        check_whole("n_wrong", self.n_wrong, 0, self.n_above)
        inner_fraction("confidence", self.confidence)
        check_number("risk", self.risk, 0, 1 if self.largest_cost is None else self.largest_cost)
        if self.coverage != share_of(self.n_above, self.n):
            expected = f"n_above / n, {share_of(self.n_above, self.n)}"
            raise wrong("coverage", expected, self.coverage)
        if self.needed is not None:
            if self.threshold is not None:
                raise wrong("needed", "None, because there is a threshold", self.needed)
            check_whole("needed", self.needed, self.n + 1, MAX_NEEDED)
        if self.of_options is not None:
            lowest = min((each for each in self.of_options if each is not None), default=None)
            if lowest != self.threshold:
                raise wrong("threshold", f"the lowest of of_options, {lowest}", self.threshold)


@dataclass(frozen=True, kw_only=True)
class Automation(JsonFields):
    """Say how many answers could be given without a person; see :func:`.thresholds.automation`.

    Attributes
    ----------
    accuracy : float
        The share of right answers.
    share : float
        The share of answers above the lowest probability above which at most `risk` are wrong.
    low, high : float
        A 90 % interval for the share.
    risk : float
    """

    accuracy: Share
    share: Share
    low: Share
    high: Share
    risk: Share

    def __str__(self) -> str:
        return f"{self.share:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, kw_only=True)
class ConformalSets(JsonFields):
    """Hold the result of :func:`conformal`, which turns probabilities into sets of options.

    Attributes
    ----------
    threshold : float
        1 - q: the sets contain all options whose probability is at least `threshold`. It is 0 if
        there are too few labelled rows for `alpha`.
    of_options : tuple of float, or None
        If the sets contain the right option with the same probability whichever option is right,
        the threshold of each option. The lowest one is `threshold`.
    alpha : float
        The highest probability that a set does not contain the right option.
    n : int
        The number of labelled rows.
    n_options : int
        The number of options of the question.
    """

    threshold: Share
    alpha: Share
    n: Count
    n_options: Annotated[int, (1,)]
    of_options: tuple[Share, ...] | None = None

    def sets(self, probabilities: ArrayLike) -> tuple[tuple[int, ...], ...]:
        """Return the indices of the options in the set of each row, which can be empty.

        `probabilities` has the shape [n, n_options].
        """
        least = self.threshold if self.of_options is None else np.array(self.of_options)
        inside = np.asarray(probabilities) >= least
        return tuple(tuple(np.flatnonzero(row).tolist()) for row in inside)

    def intervals(self, probabilities: ArrayLike) -> tuple[range, ...]:
        """Return the smallest range of options that contains the set of each row.

        This is for ordered options, such as the levels of a score. An empty set is ``range(0)``.
        """
        sets = self.sets(probabilities)
        return tuple(range(each[0], each[-1] + 1) if each else range(0) for each in sets)

    def _check(self) -> None:
        if self.threshold and rank_of(self.n, inner_fraction("alpha", self.alpha)) > self.n:
            expected = f"0, because {self.n} rows are too few for alpha"
            raise wrong("threshold", expected, self.threshold)
        of_options = self.of_options
        found = None if of_options is None else (len(of_options), min(of_options))
        if of_options is not None and found != (self.n_options, self.threshold):
            what = f"{self.n_options} thresholds, the lowest of them {self.threshold}"
            raise wrong("of_options", what, of_options)


def of_answers(probabilities: ArrayLike, frequencies: Sequence[float] | None = None) -> Array:
    """Return the probability of the most probable option of each row, shape [n].

    With `frequencies`, the answers stay the same, but each has the probability that it would have
    if all options were equally frequent.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    answers = p.argmax(axis=1)
    if frequencies is not None:
        p = p / np.asarray(frequencies)
        p = p / p.sum(axis=1, keepdims=True)
    result: Array = p[np.arange(len(p)), answers]
    return result


def rank_of(n: int, alpha: float) -> int:
    """Return ceil((n + 1)(1 - alpha)) for the decimal number that alpha is written as.

    With floats, 1 - alpha is often rounded, and the product of a whole rank is not whole.
    """
    return math.ceil((n + 1) * (1 - Fraction(repr(alpha))))


def share_of(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def inner_fraction(name: str, value: Any, most: float = 1) -> float:
    """Check that a value is a number above 0 and below 1, or below the largest cost."""
    number = float(check_number(name, value, 0, most))
    if not 0 < number < most:
        raise wrong(name, f"above 0 and below {most:g}", value)
    return number
