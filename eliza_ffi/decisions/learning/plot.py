"""Plots of reports: reliability diagrams and coverage curves."""

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
LEAST_WIDTH = 5.0  # inches; the width of the legend
MOST_LETTERS = 28  # of a question's name


def draw_reliability(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG with a reliability diagram for each report.

    On the diagonal, the accuracy of the answers is equal to their probability. Below the diagonal
    the answers are overconfident.
    """
    picture, panels = _panels(reports)
    for axis, each in panels:
        filled = [one for one in each.bins if one.n]
        centers = [(one.low + one.high) / 2 for one in filled]
        width = 1 / len(each.bins)
        shares = [one.n / each.n for one in filled]
        axis.bar(centers, shares, width, color="0.85", label="share of the answers")
        axis.plot([0, 1], [0, 1], "--", color="0.5", linewidth=1, label="perfect calibration")
        sure = [one.probability for one in filled]
        right = [one.accuracy for one in filled]
        axis.plot(sure, right, "o-", color="C0", label="accuracy")
        axis.set_title(f"{_short(each)}: ECE {each.ece:.3f}", fontsize="medium")
        axis.set_xlabel("probability of the answer")
    picture.save(path)


def draw_coverage(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG of coverage curves: the accuracy if only the most probable answers are given.

    The horizontal axis is the share of the answers that are given.
    """
    picture, panels = _panels(reports)
    for axis, each in panels:
        points = coverage_curve(each)
        shares = [point.coverage for point in points]
        axis.step(shares, [point.accuracy for point in points], "C0", label="accuracy")
        thresholds = [point.threshold for point in points]
        axis.step(shares, thresholds, "C1", linewidth=1, label="probability threshold")
        axis.set_title(f"{_short(each)}: accuracy {each.accuracy:.1%}", fontsize="medium")
        axis.set_xlabel("share of the answers given")
    picture.save(path)


def coverage_curve(report: QuestionReport) -> tuple[CoveragePoint, ...]:
    """Return coverage and accuracy at each distinct probability, highest first."""
    thresholds = np.unique(report.probabilities)[::-1]
    return coverage(report.probabilities, report.right, [float(each) for each in thresholds])


def _panels(reports: Sequence[QuestionReport]) -> tuple[Picture, list[tuple[Any, QuestionReport]]]:
    """Return a picture with one axis for each report, and the axes."""
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
