"""Reports as pictures: reliability diagrams and curves of coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .metrics import CoveragePoint, coverage
from .pictures import Picture, plain
from .question_report import QuestionReport

__all__ = ["coverage_curve", "draw_coverage", "draw_reliability"]

MOST_COLUMNS = 4
LEAST_WIDTH = 5.0  # inches that the legend takes
MOST_LETTERS = 28  # of a question's name


def draw_reliability(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG with a reliability diagram for each report.

    On the diagonal, answers are right as often as their probabilities say; below it they are too
    sure.
    """
    picture, panels = _panels(reports)
    for axis, each in panels:
        filled = [one for one in each.bins if one.n]
        centers = [(one.low + one.high) / 2 for one in filled]
        width = 1 / len(each.bins)
        shares = [one.n / each.n for one in filled]
        axis.bar(centers, shares, width, color="0.85", label="share of the answers")
        axis.plot([0, 1], [0, 1], "--", color="0.5", linewidth=1, label="as sure as right")
        sure = [one.probability for one in filled]
        right = [one.accuracy for one in filled]
        axis.plot(sure, right, "o-", color="C0", label="accuracy")
        axis.set_title(f"{_short(each)}: ECE {each.ece:.3f}", fontsize="medium")
        axis.set_xlabel("probability of the answer")
    _save(picture, path)


def draw_coverage(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG with how right the surest answers are, by how many of them are given."""
    picture, panels = _panels(reports)
    for axis, each in panels:
        points = coverage_curve(each)
        shares = [point.coverage for point in points]
        axis.step(shares, [point.accuracy for point in points], "C0", label="accuracy")
        thresholds = [point.threshold for point in points]
        axis.step(shares, thresholds, "C1", linewidth=1, label="least probability that counts")
        axis.set_title(f"{_short(each)}: {each.accuracy:.1%} of all right", fontsize="medium")
        axis.set_xlabel("share of the answers given")
    _save(picture, path)


def coverage_curve(report: QuestionReport) -> tuple[CoveragePoint, ...]:
    """Return coverage and accuracy for every threshold that makes a difference, highest first."""
    thresholds = np.unique(report.probabilities)[::-1]
    return coverage(report.probabilities, report.right, [float(each) for each in thresholds])


def _panels(reports: Sequence[QuestionReport]) -> tuple[Picture, list[tuple[Any, QuestionReport]]]:
    """Return a picture with an axis for each report."""
    columns = min(len(reports), MOST_COLUMNS)
    rows = math.ceil(len(reports) / columns)
    picture = Picture(rows, columns, size=(max(3.2 * columns + 0.6, LEAST_WIDTH), 3.1 * rows + 0.6))
    axes = list(picture.axes.flat)
    for axis in axes[len(reports) :]:
        axis.set_visible(False)
    for axis in axes[: len(reports)]:
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1.02)
        plain(axis)
    return picture, list(zip(axes, reports, strict=False))


def _short(report: QuestionReport) -> str:
    name = report.name
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _save(picture: Picture, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
