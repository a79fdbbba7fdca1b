"""Scoring rules, which turn the scores of the options' labels into probabilities.

In the formulas, x is the prompt, y a label of tokens y_1 ... y_n, p the softmax over the whole
vocabulary, and p_allowed the softmax over the tokens that can begin or continue a label:

===========  =======================================  ==========================================
rule         score of an option                       source
===========  =======================================  ==========================================
constrained  sum of log p_allowed(y_i given x, y_<i)  what constrained decoding samples from
full         sum of log p(y_i given x, y_<i)          lm-evaluation-harness ``acc``
mean         full / n                                 SGLang ``token_length_normalized``, cappr
bytes        full / the label's bytes in UTF-8        lm-evaluation-harness ``acc_norm``
===========  =======================================  ==========================================

The probabilities are the softmax of the scores over the options. ``constrained`` needs only the
logits of a few tokens. The other rules need whole rows of logits: after the prompt, and after every
token of every label except its last.

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
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import check_one_of
from ..errors import InvalidArgumentError

Rule = Literal["constrained", "full", "mean", "bytes"]

RULES: tuple[Rule, ...] = ("constrained", "full", "mean", "bytes")

LEAST_TEMPERATURE = 0.05
"""The lower bound of a fitted temperature, reached for example if all answers are right."""

MOST_TEMPERATURE = 20.0
"""The upper bound of a fitted temperature, reached for example if all answers are wrong."""

PRIOR_WEIGHT = 1.0
"""The weight of the prior in :func:`fit_temperature`."""

_HALVINGS = 40  # log(20 / 0.05) / 2**40 is 5e-12

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OptionScores:
    """Hold the scores of a question's options in one order.

    Attributes
    ----------
    legal : array, shape [n_options]
        Natural log-probabilities among the options.
    joint : array, shape [n_options], or None
        For each label, the sum of the log-probabilities of its tokens over the whole vocabulary.
        None if it was not requested.
    n_tokens, n_bytes : array of float, shape [n_options], or None
        The lengths of the labels; None if `joint` is None.
    allowed_probability : float or None
        The probability of the labels' first tokens over the whole vocabulary.
    """

    legal: Array
    joint: Array | None = None
    n_tokens: Array | None = None
    n_bytes: Array | None = None
    allowed_probability: float | None = None

    def of(self, rule: Rule) -> Array:
        """Return the scores of the options by a rule, before the softmax."""
        check_rule(rule)
        if rule == "constrained":
            return self.legal
        if self.joint is None or self.n_tokens is None or self.n_bytes is None:
            raise InvalidArgumentError(
                f"the scoring rule {rule} needs joint scores over whole rows of logits, got none"
            )
        if rule == "full":
            return self.joint
        return self.joint / (self.n_tokens if rule == "mean" else self.n_bytes)


class Prior(Protocol):
    """The prior of a question."""

    def log_probabilities(self, rule: Rule) -> Array:
        """Return the logarithm of the prior, shape [n_options]."""


@dataclass(frozen=True, eq=False)
class QuestionScores:
    """Hold the scores of a question's options in one or more orders.

    Each element of `orders` has the options in the question's order. `priors` has a prior for each
    order, or is empty. `hidden` has the hidden states of the prompt's last token, shape [n_layers,
    n_embd], if they were requested.
    """

    orders: tuple[OptionScores, ...]
    priors: tuple[Prior, ...] = ()
    hidden: NDArray[np.float32] | None = None

    def first(self, n: int) -> QuestionScores:
        return QuestionScores(self.orders[:n], self.priors[:n], self.hidden)

    def __add__(self, more: QuestionScores) -> QuestionScores:
        return QuestionScores(self.orders + more.orders, self.priors + more.priors, self.hidden)

    def by_order(self, rule: Rule) -> list[Array]:
        """Return the log-probabilities in each order, divided by the prior if there is one."""
        logs = [log_softmax(scores.of(rule)) for scores in self.orders]
        if not self.priors:
            return logs
        return [
            relative_to(each, prior.log_probabilities(rule))
            for each, prior in zip(logs, self.priors, strict=True)
        ]

    def log_probabilities(self, rule: Rule) -> Array:
        """Return the log-probabilities, divided by the priors and averaged over the orders."""
        by_order = self.by_order(rule)
        return log_softmax(by_order[0] if len(by_order) == 1 else log_mean(by_order))

    def unconditional_log_probabilities(self, joint_of_empty: Sequence[ArrayLike]) -> Array:
        """Return the result of :func:`unconditional`, averaged over the orders.

        `joint_of_empty` has the joint scores for an empty input, one array for each order.
        """
        if len(self.orders) != len(joint_of_empty):
            raise InvalidArgumentError(
                f"joint_of_empty: expected scores in {len(self.orders)} orders, got "
                f"{len(joint_of_empty)}"
            )
        each = []
        for scores, empty in zip(self.orders, joint_of_empty, strict=True):
            joint = scores.of("full")
            assert scores.n_tokens is not None  # set together with joint
            each.append(unconditional(joint, empty, scores.n_tokens))
        return log_softmax(log_mean(each))

    @property
    def allowed_probability(self) -> float | None:
        """The mean allowed probability of the orders; None if it was not requested."""
        return mean_mass([scores.allowed_probability for scores in self.orders])


def check_rule(rule: Rule) -> Rule:
    """Return a scoring rule; raise InvalidArgumentError if it is unknown."""
    check_one_of("the scoring rule", rule, RULES)
    return rule


def mean_mass(masses: Iterable[float | None]) -> float | None:
    """Return the mean of the allowed probabilities, ignoring None; None if there are no others."""
    found = [mass for mass in masses if mass is not None]
    return sum(found) / len(found) if found else None


def log_softmax(scores: ArrayLike) -> Array:
    """Shift scores so that their exponentials sum to 1 over the last axis."""
    values = np.asarray(scores, dtype=np.float64)
    highest = values.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise InvalidArgumentError("the highest score of the options must be finite")
    shifted = values - highest
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def log_mean(log_probabilities: ArrayLike) -> Array:
    """Return the logarithm of the mean of probabilities over the first axis."""
    values = np.asarray(log_probabilities, dtype=np.float64)
    if not len(values):
        raise InvalidArgumentError("log_probabilities must have at least one row, got none")
    result: Array = np.logaddexp.reduce(values, axis=0) - np.log(len(values))
    return result


def relative_to(log_probabilities: ArrayLike, log_baseline: ArrayLike) -> Array:
    r"""Divide probabilities, shape [..., n_options], by a baseline, shape [n_options].

    .. math:: q_c \propto p_c / b_c

    If b is the mean over content-free inputs, this is contextual calibration (Zhao et al. 2021). If
    b is the mean over a batch of inputs, it is batch calibration (Zhou et al. 2023).
    """
    baseline = np.asarray(log_baseline, dtype=np.float64)
    if not np.isfinite(baseline).all():
        raise InvalidArgumentError("log_baseline must be finite; an option has probability 0")
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) - baseline)


def unconditional(joint: ArrayLike, joint_of_empty: ArrayLike, n_tokens: ArrayLike) -> Array:
    r"""Score options by how much the input raises the mean log-probability of their tokens.

    .. math:: s = \frac{1}{n} \sum_{i=1}^{n} \log p(y_i \mid x, y_{<i})
              - \log p(y_i \mid x_0, y_{<i})

    Here x_0 is the prompt with an empty input. SGLang uses this formula. Without the division
    by n it is the PMI_DC of Holtzman et al. 2021. The joint scores have the shapes [..., n_options]
    and [n_options]. The result is the logarithm of the softmax of s.
    """
    baseline = np.asarray(joint_of_empty, dtype=np.float64)
    if not np.isfinite(baseline).all():
        raise InvalidArgumentError("joint_of_empty must be finite; an option has probability 0")
    return log_softmax((np.asarray(joint, dtype=np.float64) - baseline) / np.asarray(n_tokens))


def tempered(log_probabilities: ArrayLike, temperature: float) -> Array:
    """Return the logarithms of softmax(z / T) over the last axis (Guo et al. 2017).

    A temperature T above 1 makes answers less confident, below 1 more confident. The order of the
    options does not change.
    """
    if not (temperature > 0 and np.isfinite(temperature)):
        raise InvalidArgumentError(
            f"the temperature must be a finite number above 0, got {temperature!r}"
        )
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) / temperature)


def fit_temperature(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    r"""Fit a temperature to the right answers, shrunk slightly towards 1.

    .. math:: T = \arg\min_T \; -\sum_j \log \mathrm{softmax}(z_j / T)_{y_j}
              + \lambda (1/T - 1 + \log T)

    `log_probabilities` is z, shape [n, n_options]; `targets` has the right options y, shape [n].

    The second term is the prior: 1/T has a gamma distribution with its mode at 1, so that the sum
    is convex in b = 1/T. It has about the weight of one example. Without it, a few examples that
    all happen to be right move T to its lower bound, and the first wrong answer afterwards costs
    far more than the fit gains.

    The slope in b is the sum of E[z] - z_y under softmax(b z), plus 1 - 1/b from the prior. It
    changes its sign once. Bisection is slower than Newton's method, but always converges.
    """
    z = np.asarray(log_probabilities, dtype=np.float64)
    y = np.asarray(targets, dtype=np.intp)
    if not np.isfinite(z).all():
        raise InvalidArgumentError("log_probabilities must be finite; an option has probability 0")
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
