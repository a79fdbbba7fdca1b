"""From what a model says of each option to probabilities: the scoring rules.

With x the prompt, y a label of tokens y_1 ... y_n, p the softmax over the whole vocabulary
and p_legal that over the tokens which can begin or go on a label:

========  ==============================================  ======================================
rule      score of an option                              source
========  ==============================================  ======================================
legal     sum of log p_legal(y_i given x, y_<i)           what constrained decoding samples from
joint     sum of log p(y_i given x, y_<i)                 lm-evaluation-harness ``acc``, cappr
mean      joint / n                                       SGLang ``token_length_normalized``
bytes     joint / the label's bytes in UTF-8              lm-evaluation-harness ``acc_norm``
========  ==============================================  ======================================

Probabilities are the softmax of the scores over the options; those of ``legal`` sum to 1 as
they are. ``legal`` needs the logits of a few tokens; the others need whole rows of logits, at every
token of every label but its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError

__all__ = ["RULES", "OptionScores", "QuestionScores", "Rule", "log_softmax"]

Rule = Literal["legal", "joint", "mean", "bytes"]

RULES: tuple[Rule, ...] = ("legal", "joint", "mean", "bytes")

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
    n_tokens, n_bytes : array of float, shape [n_options]
        Of the labels.
    option_mass : float or None
        The share of the whole vocabulary's probability that the labels' first tokens have.
    """

    legal: Array
    joint: Array | None
    n_tokens: Array
    n_bytes: Array
    option_mass: float | None = None

    def of(self, rule: Rule) -> Array:
        """Return the scores of the options by a rule, before the softmax.

        Raises
        ------
        InvalidArgumentError
            If the rule needs what was not asked for, or is none.
        """
        if rule == "legal":
            return self.legal
        if rule not in RULES:
            raise InvalidArgumentError(f"scoring must be one of {', '.join(RULES)}, not {rule!r}")
        if self.joint is None:
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
        each = np.stack([log_softmax(scores.of(rule)) for scores in self.orders])
        return log_softmax(np.logaddexp.reduce(each, axis=0))

    @property
    def option_mass(self) -> float | None:
        """The mean over the orders."""
        each = [scores.option_mass for scores in self.orders]
        found = [mass for mass in each if mass is not None]
        return sum(found) / len(found) if found else None


def log_softmax(scores: Sequence[float] | Array) -> Array:
    """Return scores shifted so that their exponentials sum to 1."""
    values = np.asarray(scores, dtype=np.float64)
    highest = values.max()
    if not np.isfinite(highest):
        raise InvalidArgumentError("no option has a probability")
    shifted = values - highest
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result
