"""Compare two sets of answers to the same questions about the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..decisions.answers import Decision, given_answer, single_answers
from ..decisions.examples import UNLABELLED, named_questions, option_names
from ..decisions.prompts import AskedQuestion
from ..decisions.questions import Question
from .labelling import interval
from .metrics import mcnemar

CONFIDENCE = 0.95
"""The confidence of the intervals and of the verdict."""

Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class ChangedRow:
    """Hold a row whose answer differs: its index, and the names of the options."""

    row: int
    right: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Hold the answers before and after a change, compared on the same rows.

    Attributes
    ----------
    name : str
        The name of the question.
    n : int
        The number of rows with a right answer and both other answers. The other fields are about
        these rows alone.
    unanswered : (int, int)
        The number of rows with a right answer, but without an answer before and after.
    n_right : (int, int)
        The number of right answers before and after.
    n_gained, n_lost : int
        The number of rows that are right only after, and only before.
    changed : tuple of ChangedRow
        The rows whose answer differs, right or not.
    """

    name: str
    n: int
    unanswered: tuple[int, int]
    n_right: tuple[int, int]
    n_gained: int
    n_lost: int
    changed: tuple[ChangedRow, ...]

    @property
    def p(self) -> float:
        """The p-value of McNemar's exact test; see :func:`.metrics.mcnemar`."""
        return mcnemar(self.n_gained, self.n_lost)

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """The conclusion of the test about the answers after the change."""
        if self.p >= 1 - CONFIDENCE:
            return "unclear"
        return "better" if self.n_gained > self.n_lost else "worse"

    @property
    def difference(self) -> tuple[float, float]:
        """The :func:`interval <difference_interval>` of the change of the accuracy."""
        return difference_interval(self.n_gained, self.n_lost, self.n)

    def accuracy(self, side: int) -> tuple[float, float, float] | None:
        """Return the accuracy before (0) or after (1) and its interval; None without rows."""
        if not self.n:
            return None
        low, high = interval(self.n_right[side], self.n, CONFIDENCE)
        return self.n_right[side] / self.n, low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON data, with the rows under ``changed``."""
        found: dict[str, Any] = {"n": self.n}
        for side, name in enumerate(("before", "after")):
            value, low, high = self.accuracy(side) or (None, None, None)
            found[name] = value
            found[f"{name}_interval"] = None if low is None else [low, high]
            found[f"{name}_unanswered"] = self.unanswered[side]
        return {
            **found,
            "gained": self.n_gained,
            "lost": self.n_lost,
            "difference_interval": list(self.difference) if self.n else None,
            "p": self.p,
            "verdict": self.verdict,
            "changed": [vars(each) for each in self.changed],
        }


def option_indices(
    questions: Sequence[Question], decisions: Sequence[Decision[Any] | Exception]
) -> Indices:
    """Return the most probable option of each question, shape [n_rows, n_questions].

    An exception has `UNLABELLED`. Labels are one question each, as in :func:`.named_questions`.
    """
    values = [question.values for _, question in named_questions(questions)]
    rows = [
        [UNLABELLED] * len(values)
        if isinstance(each, Exception)
        else [
            options.index(given_answer(answer))
            for options, (_, answer) in zip(values, single_answers(each), strict=True)
        ]
        for each in decisions
    ]
    return np.array(rows, dtype=np.intp).reshape(-1, len(values))


def compare_answers(
    questions: Sequence[Question], targets: Indices, before: Indices, after: Indices
) -> tuple[PairedComparison, ...]:
    """Compare answers with the right ones, for each question.

    All arrays have the shape [n_rows, n_questions] and hold indices of options, or
    :data:`~eliza_ffi.decisions.examples.UNLABELLED` for a missing answer.

        (found,) = compare_answers([question], targets, before, after)
        print(found.verdict, found.p)
    """
    return tuple(
        _compared(name, question, *each)
        for (name, question), *each in zip(
            named_questions(questions), targets.T, before.T, after.T, strict=True
        )
    )


def _compared(
    name: str, question: AskedQuestion, targets: Indices, before: Indices, after: Indices
) -> PairedComparison:
    told = targets != UNLABELLED
    both = np.flatnonzero(told & (before != UNLABELLED) & (after != UNLABELLED))
    options, y = option_names(question), targets[both]
    right = before[both] == y, after[both] == y
    differs = both[before[both] != after[both]].tolist()
    return PairedComparison(
        name=name,
        n=len(both),
        unanswered=(
            int((told & (before == UNLABELLED)).sum()),
            int((told & (after == UNLABELLED)).sum()),
        ),
        n_right=(int(right[0].sum()), int(right[1].sum())),
        n_gained=int((~right[0] & right[1]).sum()),
        n_lost=int((right[0] & ~right[1]).sum()),
        changed=tuple(
            ChangedRow(
                row=row,
                right=options[targets[row]],
                before=options[before[row]],
                after=options[after[row]],
            )
            for row in differs
        ),
    )


def difference_interval(n_gained: int, n_lost: int, n: int) -> tuple[float, float]:
    """Return an interval for the change of an accuracy on `n` rows, from -1 to 1.

    It is Wald's interval for paired proportions, with one more gain and one more loss (Bonett and
    Price, "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on
    Paired Data", Journal of Educational and Behavioral Statistics 37(4), 2012).
    """
    gained, lost = (n_gained + 1) / (n + 2), (n_lost + 1) / (n + 2)
    difference = gained - lost
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    half = z * math.sqrt((gained + lost - difference**2) / (n + 2))
    return max(difference - half, -1.0), min(difference + half, 1.0)
