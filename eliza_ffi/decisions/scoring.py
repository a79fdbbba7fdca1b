"""From what a model says of each option to probabilities: the scoring rules.

With x the prompt, y a label of tokens y_1 ... y_n, p the softmax over the whole vocabulary
and p_legal that over the tokens which can begin or go on a label:

========  ======================================  ==========================================
rule      score of an option                      source
========  ======================================  ==========================================
legal     sum of log p_legal(y_i given x, y_<i)   what constrained decoding samples from
joint     sum of log p(y_i given x, y_<i)         lm-evaluation-harness ``acc``
mean      joint / n                               SGLang ``token_length_normalized``, cappr
bytes     joint / the label's bytes in UTF-8      lm-evaluation-harness ``acc_norm``
========  ======================================  ==========================================

Probabilities are the softmax of the scores over the options; those of ``legal`` sum to 1 as
they are. ``legal`` needs the logits of a few tokens; the others need whole rows of logits, at every
token of every label but its last.

Rules that compare with what the model says anyway, or that were fitted on examples, are functions
on what these give. Of an option of n tokens, with P the probabilities by a rule above:

=============  ============================================  =====================================
function       score of an option                            source
=============  ============================================  =====================================
unconditional  (joint - joint of an empty input) / n         SGLang; PMI_DC of Holtzman et al. 2021
relative_to    log P - log of the mean P of inputs that      Zhao et al. 2021, "contextual"
               say nothing
relative_to    log P - log of the mean P of a batch          Zhou et al. 2023, "batch"
tempered       log P / T, T by :func:`fit_temperature`       Guo et al. 2017
=============  ============================================  =====================================

References
----------
Holtzman et al., "Surface Form Competition: Why the Highest Probability Answer Isn't Always Right",
arXiv:2104.08315. Zhao et al., "Calibrate Before Use: Improving Few-Shot Performance of Language
Models", arXiv:2102.09690. Zhou et al., "Batch Calibration: Rethinking Calibration for In-Context
Learning and Prompt Engineering", arXiv:2309.17249. Guo et al., "On Calibration of Modern Neural
Networks", arXiv:1706.04599.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import check_one_of
from ..errors import InvalidArgumentError

__all__ = [
    "LEAST_TEMPERATURE",
    "MOST_TEMPERATURE",
    "PRIOR_WEIGHT",
    "RULES",
    "OptionScores",
    "QuestionScores",
    "Rule",
    "check_rule",
    "fit_temperature",
    "log_mean",
    "log_softmax",
    "mean_mass",
    "relative_to",
    "tempered",
    "unconditional",
]

Rule = Literal["legal", "joint", "mean", "bytes"]

RULES: tuple[Rule, ...] = ("legal", "joint", "mean", "bytes")

LEAST_TEMPERATURE = 0.05
"""No temperature below is fitted: where no example is wrong, none would be low enough."""

MOST_TEMPERATURE = 20.0
"""No temperature above is fitted: where scores tell nothing, none would be high enough."""

PRIOR_WEIGHT = 1.0
"""Lambda, how much a temperature is drawn to 1; see :func:`fit_temperature`."""

_HALVINGS = 40  # log(20 / 0.05) / 2**40 is 5e-12

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OptionScores:
    """What a model said of a question's options, asked once.

    Attributes
    ----------
    legal : array, shape [n_options]
        Log-probabilities among the options, natural.
    joint : array, shape [n_options], or None
        The sums of the labels' log-probabilities among the whole vocabulary; None where whole rows
        of logits were not asked for.
    n_tokens, n_bytes : array of float, shape [n_options], or None
        Of the labels; beside `joint`.
    option_mass : float or None
        The share of the whole vocabulary's probability that the labels' first tokens have.
    """

    legal: Array
    joint: Array | None = None
    n_tokens: Array | None = None
    n_bytes: Array | None = None
    option_mass: float | None = None

    def of(self, rule: Rule) -> Array:
        """Return the scores of the options by a rule, before the softmax.

        Raises
        ------
        InvalidArgumentError
            If the rule needs what was not asked for, or is none.
        """
        check_rule(rule)
        if rule == "legal":
            return self.legal
        if self.joint is None or self.n_tokens is None or self.n_bytes is None:
            raise InvalidArgumentError(f"{rule} scores need whole rows of logits")
        if rule == "joint":
            return self.joint
        return self.joint / (self.n_tokens if rule == "mean" else self.n_bytes)


@dataclass(frozen=True, eq=False)
class QuestionScores:
    """What a model said of a question's options, asked in one order of them or several.

    Attributes
    ----------
    orders : tuple of OptionScores
        Each with the options in the order that the question gives them.
    """

    orders: tuple[OptionScores, ...]

    def log_probabilities(self, rule: Rule) -> Array:
        """Return the logarithms of the options' probabilities, averaged over the orders.

        Parameters
        ----------
        rule

        Returns
        -------
        array, shape [n_options]
            Their exponentials sum to 1.
        """
        return log_softmax(log_mean([log_softmax(scores.of(rule)) for scores in self.orders]))

    def unconditional_log_probabilities(self, joint_of_empty: Sequence[ArrayLike]) -> Array:
        """Return the logarithms of the options' probabilities relative to an empty input.

        Parameters
        ----------
        joint_of_empty
            The joint scores of an empty input, for each order those of the options asked so.

        Returns
        -------
        array, shape [n_options]
            See :func:`unconditional`, averaged over the orders.

        Raises
        ------
        InvalidArgumentError
            If these are not as many as the orders, or joint scores were not asked for.
        """
        if len(self.orders) != len(joint_of_empty):
            raise InvalidArgumentError(
                f"scores in {len(self.orders)} orders do not go with {len(joint_of_empty)} of an "
                "empty input"
            )
        each = []
        for scores, empty in zip(self.orders, joint_of_empty, strict=True):
            joint = scores.of("joint")
            assert scores.n_tokens is not None  # they come with the joint scores
            each.append(unconditional(joint, empty, scores.n_tokens))
        return log_softmax(log_mean(each))

    @property
    def option_mass(self) -> float | None:
        """The mean over the orders."""
        return mean_mass(scores.option_mass for scores in self.orders)


def check_rule(rule: Rule) -> Rule:
    """Return a scoring rule; raise InvalidArgumentError if it is none."""
    check_one_of("the scoring rule", rule, RULES)
    return rule


def mean_mass(masses: Iterable[float | None]) -> float | None:
    """Return the mean of options' shares of the vocabulary; None where none was found."""
    found = [mass for mass in masses if mass is not None]
    return sum(found) / len(found) if found else None


def log_softmax(scores: ArrayLike) -> Array:
    """Return scores shifted so that their exponentials sum to 1, over the last axis."""
    values = np.asarray(scores, dtype=np.float64)
    highest = values.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise InvalidArgumentError("no option has a probability")
    shifted = values - highest
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def log_mean(log_probabilities: ArrayLike) -> Array:
    """Return the logarithms of the mean probabilities over the first axis.

    Parameters
    ----------
    log_probabilities
        Shape [n, n_options], n at least 1.

    Returns
    -------
    array, shape [n_options]
    """
    values = np.asarray(log_probabilities, dtype=np.float64)
    if not len(values):
        raise InvalidArgumentError("nothing has no mean")
    result: Array = np.logaddexp.reduce(values, axis=0) - np.log(len(values))
    return result


def relative_to(log_probabilities: ArrayLike, log_baseline: ArrayLike) -> Array:
    r"""Divide probabilities by what the options have anyway, and renormalise.

    .. math:: q_c \propto p_c / b_c

    With b the mean over inputs that say nothing this is contextual calibration (Zhao et al. 2021),
    with b the mean over a batch of inputs it is batch calibration (Zhou et al. 2023). A uniform b
    changes nothing.

    Parameters
    ----------
    log_probabilities
        Shape [..., n_options].
    log_baseline
        Shape [n_options], finite.

    Returns
    -------
    array, shape [..., n_options]
        Log-probabilities.
    """
    baseline = np.asarray(log_baseline, dtype=np.float64)
    if not np.isfinite(baseline).all():
        raise InvalidArgumentError("an option has no probability to be compared with")
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) - baseline)


def unconditional(joint: ArrayLike, joint_of_empty: ArrayLike, n_tokens: ArrayLike) -> Array:
    r"""Score options by how much likelier an input makes their tokens, in the mean.

    .. math:: s = \frac{1}{n} \sum_{i=1}^{n} \log p(y_i \mid x, y_{<i})
              - \log p(y_i \mid x_0, y_{<i})

    with x_0 the prompt around an empty input (SGLang; without the division it is the PMI_DC of
    Holtzman et al. 2021).

    Parameters
    ----------
    joint, joint_of_empty
        The sums of the labels' log-probabilities with the input and with an empty one, shapes
        [..., n_options] and [n_options].
    n_tokens
        Of the labels.

    Returns
    -------
    array, shape [..., n_options]
        Log-probabilities: the softmax of the scores.
    """
    baseline = np.asarray(joint_of_empty, dtype=np.float64)
    if not np.isfinite(baseline).all():
        raise InvalidArgumentError("an option has no probability to be compared with")
    return log_softmax((np.asarray(joint, dtype=np.float64) - baseline) / np.asarray(n_tokens))


def tempered(log_probabilities: ArrayLike, temperature: float) -> Array:
    r"""Return the logarithms of softmax(z / T) over the last axis.

    Parameters
    ----------
    log_probabilities
        z, shape [..., n_options]: log-probabilities, or logits.
    temperature
        T, above 0: above 1 makes answers less sure, below 1 surer. Their order stays.
    """
    if not (temperature > 0 and np.isfinite(temperature)):
        raise InvalidArgumentError(f"the temperature must be above 0, not {temperature!r}")
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) / temperature)


def fit_temperature(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    r"""Return the temperature under which the right answers are likeliest, drawn a little to 1.

    .. math:: T = \arg\min_T \; -\sum_j \log \mathrm{softmax}(z_j / T)_{y_j}
              + \lambda (1/T - 1 + \log T)

    Parameters
    ----------
    log_probabilities
        z, shape [n, n_options], finite.
    targets
        y, shape [n]: which option is right.

    Returns
    -------
    float
        Between :data:`LEAST_TEMPERATURE` and :data:`MOST_TEMPERATURE`. 1 where no other is better.

    Notes
    -----
    The second term is the prior: near T = 1 it is (log T)^2 / 2, a normal one on log T of standard
    deviation 1, and has the weight of an example or so. Without it a few examples that all happen
    to be right make T run to its bound, and the first wrong answer behind them cost far more than
    fitting ever gains; among a hundred it hardly shows. It is that form of the prior (1/T has a
    gamma distribution with its mode at 1) which leaves the sum convex in b = 1/T.

    The slope in b is the sum of E[z] - z_y under softmax(b z) and of 1 - 1/b, the prior's. It
    changes its sign once, and where is found by bisection in log T: slower than Newton's method,
    and never led astray.
    """
    z = np.asarray(log_probabilities, dtype=np.float64)
    y = np.asarray(targets, dtype=np.intp)
    if z.ndim != 2 or y.shape != z.shape[:1] or not len(y):
        raise InvalidArgumentError(f"shapes {z.shape} and {y.shape} are no scores and targets")
    if not np.isfinite(z).all():
        raise InvalidArgumentError("an option without a probability has no temperature")
    z = z - z.max(axis=1, keepdims=True)
    rows = np.arange(len(y))
    right = z[rows, y]

    def slope(log_t: float) -> float:
        p = np.exp(log_softmax(z * np.exp(-log_t)))
        of_prior = PRIOR_WEIGHT * (1.0 - np.exp(log_t))
        return float(((p * z).sum(axis=1) - right).sum() + of_prior)

    def loss(temperature: float) -> float:
        of_prior = PRIOR_WEIGHT * (1.0 / temperature - 1.0 + np.log(temperature))
        return float(-tempered(z, temperature)[rows, y].sum() + of_prior)

    low, high = np.log(LEAST_TEMPERATURE), np.log(MOST_TEMPERATURE)
    if slope(low) <= 0:
        best = LEAST_TEMPERATURE
    elif slope(high) >= 0:
        best = MOST_TEMPERATURE
    else:
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        best = float(np.exp((low + high) / 2))
    return best if loss(best) < loss(1.0) else 1.0
