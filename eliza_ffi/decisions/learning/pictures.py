"""PNG figures, drawn with matplotlib if it is installed, and the plots of reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NotSupportedError
from .metrics import CoveragePoint, QuestionReport, coverage

MOST_COLUMNS = 4
LEAST_WIDTH = 5.0  # inches; the width of the legend
MOST_LETTERS = 28  # of a question's name


def load_matplotlib() -> Any:
    """Import and return ``matplotlib.figure``; raise NotSupportedError if it is not installed."""
    try:
        import matplotlib.figure
    except ImportError:
        raise NotSupportedError("a plot needs matplotlib: pip install 'eliza-ffi[plot]'") from None
    return matplotlib.figure


class Picture:
    """Draw a grid of `axes` with one legend below it.

    `size` is the width and the height in inches, and `sharing` has the arguments ``sharex`` and
    ``sharey`` of matplotlib's ``subplots``.
    """

    def __init__(
        self, rows: int, columns: int, size: tuple[float, float], **sharing: bool | str
    ) -> None:
        self._figure = load_matplotlib().Figure(figsize=size)
        self._height = size[1]
        self.axes: Any = self._figure.subplots(rows, columns, squeeze=False, **sharing)

    def save(self, file: Path, legend_columns: int = 4) -> None:
        """Write the PNG. The legend contains each label once."""
        shown: dict[str, Any] = {}
        for axis in self.axes.flat:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                shown.setdefault(label, handle)
        self._figure.legend(
            list(shown.values()),
            list(shown),
            loc="lower center",
            ncols=legend_columns,
            frameon=False,
            fontsize="small",
        )
        self._figure.tight_layout(rect=(0.0, 0.45 / self._height, 1.0, 1.0))
        self._figure.savefig(file, format="png", dpi=120)


def plain(axis: Any, grid: str = "both") -> None:
    """Give an axis a pale grid, and remove its top and right borders."""
    axis.grid(True, axis=grid, alpha=0.25)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


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
