"""Scoring rules, which turn the scores of the options' labels into probabilities.

In the formulas, x is the prompt, y a label of tokens y_1 ... y_n, p the softmax over the whole
vocabulary, and p_allowed the softmax over the tokens that can begin or continue a label:

===========  =======================================  ==========================================
scoring      score of an option                       source
===========  =======================================  ==========================================
constrained  sum of log p_allowed(y_i given x, y_<i)  what constrained decoding samples from
full         sum of log p(y_i given x, y_<i)          lm-evaluation-harness ``acc``
===========  =======================================  ==========================================

The probabilities are the softmax of the scores over the options. ``constrained`` needs only the
logits of a few tokens. ``full`` needs whole rows of logits: after the prompt, and after every token
of every label except its last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import check_one_of
from ..decisions.probabilities import Array, log_mean, log_softmax, relative_to
from ..errors import InvalidArgumentError

ScoringRule = Literal["constrained", "full"]

SCORING_RULES: tuple[ScoringRule, ...] = ("constrained", "full")

MIN_TEMPERATURE = 0.05
"""The lower bound of a fitted temperature, reached for example if all answers are right."""

MAX_TEMPERATURE = 20.0
"""The upper bound of a fitted temperature, reached for example if all answers are wrong."""

DEFAULT_WEIGHTS = (0.5, 1.0)
"""The weights of an encoder's log-probabilities and of the options' scores, without labels.
docs/explanation/measurements.md has the measurements."""


@dataclass(frozen=True, eq=False)
class OptionScores:
    """Hold the scores of a question's options in one order.

    Attributes
    ----------
    constrained : array, shape [n_options]
        Natural log-probabilities among the options.
    full : array, shape [n_options], or None
        For each label, the sum of the log-probabilities of its tokens over the whole vocabulary.
        None if it was not requested.
    allowed_probability : float or None
        The probability of the labels' first tokens over the whole vocabulary.
    """

    constrained: Array
    full: Array | None = None
    allowed_probability: float | None = None

    def of(self, scoring: ScoringRule) -> Array:
        """Return the scores of the options by a rule, before the softmax."""
        if scoring == "constrained":
            return self.constrained
        if self.full is None:
            raise InvalidArgumentError(
                f"scoring {scoring!r} needs full scores over whole rows of logits, got none"
            )
        return self.full


Prior: TypeAlias = "dict[ScoringRule, Array]"
"""The logarithm of a question's prior for each scoring rule, shape [n_options]."""


@dataclass(frozen=True, eq=False)
class QuestionScores:
    """Hold the scores of a question's options in one or more orders.

    Each element of `orders` has the options in the question's order. It is empty if the options
    were not scored. `priors` has a prior for each order, or is empty. `hidden` has the features
    of the prompt, shape [n_features, n_embd], if they were requested.

    `evidence` has the log-probabilities of an encoder or a reranker, before the softmax. If
    `needs_threshold` is true, they are the value of a label and 0, and mean something only relative
    to a fitted threshold.
    """

    orders: tuple[OptionScores, ...]
    priors: tuple[Prior, ...] = ()
    hidden: NDArray[np.float32] | None = None
    evidence: Array | None = None
    needs_threshold: bool = False
    are_levels: bool = False

    def first(self, n: int) -> QuestionScores:
        return replace(self, orders=self.orders[:n], priors=self.priors[:n])

    def sources(self, scoring: ScoringRule) -> list[Array]:
        """Return the log-probabilities of each source: an encoder first, then the options' scores.

        The options' scores are divided by the priors, and averaged over the orders.
        """
        found = [] if self.evidence is None else [log_softmax(self.evidence)]
        if self.orders:
            by_order = self.by_order(scoring)
            found.append(log_softmax(by_order[0] if len(by_order) == 1 else log_mean(by_order)))
        return found

    def by_order(self, scoring: ScoringRule) -> list[Array]:
        """Return the log-probabilities in each order, divided by the prior if there is one."""
        logs = [log_softmax(scores.of(scoring)) for scores in self.orders]
        if not self.priors:
            return logs
        return [
            relative_to(each, prior[scoring]) for each, prior in zip(logs, self.priors, strict=True)
        ]

    def log_probabilities(self, scoring: ScoringRule) -> Array:
        """Return the log-probabilities of all sources together, with :func:`default_weights`."""
        sources = self.sources(scoring)
        if len(sources) == 1 or self.needs_threshold:
            return sources[-1]
        weights = default_weights((True, False), self.are_levels)
        return log_softmax(np.array(weights) @ np.array(sources))

    @property
    def allowed_probability(self) -> float | None:
        """The mean allowed probability of the orders; None if it was not requested."""
        return mean_mass([scores.allowed_probability for scores in self.orders])


def default_weights(compares: Sequence[bool], is_score: bool) -> tuple[float, ...]:
    """Return the weights of sources without labels; `compares` says which are encoders.

    With a decoder, the similarity to the levels of a score counts only with fitted weights. All
    levels are about the same thing, and embeddings hardly tell degrees apart.
    """
    if len(compares) == 1:
        return (1.0,)
    of_encoder = 0.0 if is_score and not all(compares) else DEFAULT_WEIGHTS[0]
    return tuple(of_encoder if each else DEFAULT_WEIGHTS[1] for each in compares)


def check_scoring(scoring: ScoringRule) -> ScoringRule:
    """Return a scoring rule; raise InvalidArgumentError if it is unknown."""
    check_one_of("scoring", scoring, SCORING_RULES)
    return scoring


def mean_mass(masses: Iterable[float | None]) -> float | None:
    """Return the mean of the allowed probabilities, ignoring None; None if there are no others."""
    found = [mass for mass in masses if mass is not None]
    return sum(found) / len(found) if found else None


def with_unseen(log_probabilities: Array, own: ArrayLike, unseen: Mapping[int, float]) -> Array:
    """Take the probabilities of some options from the model itself; the others share the rest.

    `unseen` maps options without an example, about which a head knows nothing, to the factor of
    their odds. `own` has the probabilities that the model itself gives to all options. Both are
    logarithms, shape [..., n_options].
    """
    if not unseen:
        return log_probabilities
    result = np.array(own, dtype=np.float64)
    for option, factor in unseen.items():
        result[..., option] += np.log(factor)
    seen = np.setdiff1d(np.arange(result.shape[-1]), list(unseen))
    rest = np.exp(log_softmax(result)[..., seen]).sum(axis=-1, keepdims=True)
    result[..., seen] = log_softmax(log_probabilities[..., seen]) + np.log(np.maximum(rest, 1e-12))
    return log_softmax(result)
