"""The quality of the answers to one question."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scoring import Array
from .metrics import Bin, CoveragePoint

__all__ = ["QuestionReport", "SetReport"]


@dataclass(frozen=True)
class SetReport:
    """Summarize the sets of options that may be right.

    Attributes
    ----------
    coverage : float
        The share of sets that contain the right option.
    size : float
        The mean number of options in a set.
    """

    coverage: float
    size: float


@dataclass(frozen=True, eq=False, kw_only=True)
class QuestionReport:
    """Report the quality of the answers to one question, or to all questions together.

    :mod:`eliza_ffi.decisions.learning.metrics` contains the formulas.

    Attributes
    ----------
    name : str
        The name of the question; ``"all"`` for all questions together.
    kind : str
        ``"predicate"``, ``"choice"`` or ``"score"``; ``"all"`` for all questions together. In a
        report of kind ``"all"`` every answer has the same weight, except in `macro_f1`, which is
        the mean over the questions.
    options : tuple of str
        The names of the rows and columns of `confusion`.
    n : int
        The number of evaluated answers.
    accuracy, macro_f1, nll, brier, ece : float
    majority : float
        The accuracy of always giving the most frequent right answer; over all questions, the mean
        weighted by their answers.
    confusion : tuple of tuple of int
        One row for each right option and one column for each answer; empty for all questions
        together.
    flips : float or None
        The proportion of examples whose answer depends on the order of the options. The answers in
        the separate orders are compared, without a calibration. None if only one order was asked.
    level_error : float or None
        For a score, the mean distance between the expected level and the right one, in levels.
        Otherwise None.
    bins : tuple of Bin
        The reliability diagram.
    coverage : tuple of CoveragePoint
    certified : CoveragePoint or None
        The answers above the certified threshold of the calibration. None without one.
    sets : SetReport or None
        The sets of options. None if the calibration has none.
    warnings : tuple of str
        What suggests that the prompt does not work; see :mod:`eliza_ffi.decisions.doubts`.
    probabilities : array, shape [n]
        The probability of each answer.
    right : array of bool, shape [n]
        Whether each answer is right.
    """

    name: str
    kind: str
    options: tuple[str, ...]
    n: int
    accuracy: float
    majority: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    confusion: tuple[tuple[int, ...], ...]
    flips: float | None
    level_error: float | None
    bins: tuple[Bin, ...]
    coverage: tuple[CoveragePoint, ...]
    certified: CoveragePoint | None = None
    sets: SetReport | None = None
    warnings: tuple[str, ...]
    probabilities: Array = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data, without `probabilities` and `right`."""
        fields = asdict(self)
        del fields["probabilities"], fields["right"]
        return fields
