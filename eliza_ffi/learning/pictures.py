"""The plots of reports: PNG files, drawn with matplotlib if it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NotSupportedError
from .metrics import CoveragePoint, QuestionReport, coverage

MAX_COLUMNS = 4
MIN_WIDTH = 5.0  # inches; the width of the legend
MAX_LETTERS = 28  # of a question's name


def load_matplotlib() -> Any:
    """Import and return ``matplotlib.figure``; raise NotSupportedError if it is not installed."""
    try:
        import matplotlib.figure
    except ImportError:
        raise NotSupportedError("a plot needs matplotlib: pip install 'eliza-ffi[plot]'") from None
    return matplotlib.figure


def draw_reliability(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG with a reliability diagram for each report.

    On the diagonal, the accuracy of the answers is equal to their probability. Below the diagonal
    the answers are overconfident.
    """

    def draw(axis: Any, each: QuestionReport) -> None:
        filled = [one for one in each.bins if one.n]
        centers = [(one.low + one.high) / 2 for one in filled]
        shares = [one.n / each.n for one in filled]
        axis.bar(centers, shares, 1 / len(each.bins), color="0.85", label="share of the answers")
        axis.plot([0, 1], [0, 1], "--", color="0.5", linewidth=1, label="perfect calibration")
        sure = [one.probability for one in filled]
        axis.plot(sure, [one.accuracy for one in filled], "o-", color="C0", label="accuracy")
        axis.set_title(f"{_short(each.name)}: ECE {each.ece:.3f}", fontsize="medium")
        axis.set_xlabel("probability of the answer")

    _draw(reports, path, draw)


def draw_coverage(reports: Sequence[QuestionReport], path: Path) -> None:
    """Write a PNG of coverage curves: the accuracy if only the most probable answers are given.

    The horizontal axis is the share of the answers that are given.
    """

    def draw(axis: Any, each: QuestionReport) -> None:
        points = coverage_curve(each)
        shares = [point.coverage for point in points]
        axis.step(shares, [point.accuracy for point in points], "C0", label="accuracy")
        thresholds = [point.threshold for point in points]
        axis.step(shares, thresholds, "C1", linewidth=1, label="probability threshold")
        axis.set_title(f"{_short(each.name)}: accuracy {each.accuracy:.1%}", fontsize="medium")
        axis.set_xlabel("share of the answers given")

    _draw(reports, path, draw)


def coverage_curve(report: QuestionReport) -> tuple[CoveragePoint, ...]:
    """Return coverage and accuracy at each distinct probability, highest first."""
    thresholds = np.unique(report.probabilities)[::-1]
    return coverage(report.probabilities, report.right, [float(each) for each in thresholds])


def _draw(
    reports: Sequence[QuestionReport], path: Path, draw: Callable[[Any, QuestionReport], None]
) -> None:
    """Write a PNG with one panel for each report, and one legend."""
    columns = min(len(reports), MAX_COLUMNS)
    rows = math.ceil(len(reports) / columns)
    height = 3.1 * rows + 0.6
    figure = load_matplotlib().Figure(figsize=(max(3.2 * columns + 0.6, MIN_WIDTH), height))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[len(reports) :]:
        axis.set_visible(False)
    for axis, each in zip(axes, reports, strict=False):
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1.02)
        axis.grid(True, alpha=0.25)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        draw(axis, each)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place: Any = {"loc": "lower center", "ncols": 4, "frameon": False, "fontsize": "small"}
    figure.legend(handles, labels, **place)
    figure.tight_layout(rect=(0.0, 0.45 / height, 1.0, 1.0))
    figure.savefig(path, format="png", dpi=120)


def _short(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…"
