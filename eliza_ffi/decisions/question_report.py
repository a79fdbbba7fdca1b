"""How good the answers to one question are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metrics import Bin, CoveragePoint
from .scoring import Array

__all__ = ["QuestionReport"]


@dataclass(frozen=True, eq=False, kw_only=True)
class QuestionReport:
    """How good the answers to one question are, or to all of them.

    :mod:`eliza_ffi.decisions.metrics` has the formulas.

    Attributes
    ----------
    name : str
    kind : str
        ``"predicate"``, ``"choice"``, ``"score"``; ``"all"`` for all questions together, each
        answer of which counts alike, but for `macro_f1`, the mean over the questions.
    options : tuple of str
        What the rows and columns of `confusion` stand for.
    n : int
        How many answers were judged.
    accuracy, macro_f1, nll, brier, ece : float
    confusion : tuple of tuple of int
        A row for each right option, a column for each answer; empty for all questions together.
    flips : float or None
        The share of examples that are not answered alike in all orders of the options that were
        tried, each order by itself and before any calibration; None where only one was.
    level_error : float or None
        Of scores: how far the expected level is off, in levels.
    bins : tuple of Bin
        The reliability diagram.
    coverage : tuple of CoveragePoint
    probabilities : array, shape [n]
        Of the answers.
    right : array of bool, shape [n]
        Which of them are right.
    """

    name: str
    kind: str
    options: tuple[str, ...]
    n: int
    accuracy: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    confusion: tuple[tuple[int, ...], ...]
    flips: float | None
    level_error: float | None
    bins: tuple[Bin, ...]
    coverage: tuple[CoveragePoint, ...]
    probabilities: Array = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the single answers as JSON."""
        said = asdict(self)
        del said["probabilities"], said["right"]
        return said
