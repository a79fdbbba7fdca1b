"""Draw results as pictures: the time of a choice as a function of one parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.pictures import Picture, plain

from ..methods import colours


@dataclass(frozen=True)
class Panel:
    """One panel of a picture.

    Attributes
    ----------
    cells : sequence of dict
        Measured cells, each with its position on the x axis as ``x``.
    """

    title: str
    x_label: str
    cells: Sequence[dict[str, Any]]


def plot_peers(results: dict[str, Any], file: Path) -> None:
    """Draw the time of a choice over the number of labels, one panel per model."""
    models = dict.fromkeys(cell["model"] for cell in results["cells"])
    panels = [
        Panel(
            model,
            "labels",
            [{**cell, "x": cell["choices"]} for cell in results["cells"] if cell["model"] == model],
        )
        for model in models
    ]
    draw(panels, file, columns=len(panels))


def draw(panels: Sequence[Panel], file: Path, *, columns: int) -> None:
    """Draw panels that share one scale of milliseconds; both axes are logarithmic."""
    rows = math.ceil(len(panels) / columns)
    picture = Picture(rows, columns, (3.4 * columns, 3.2 * rows + 0.5), sharey=True)
    for place, axis in enumerate(picture.axes.flat):
        if place < len(panels):
            _draw_panel(axis, panels[place])
        else:
            axis.set_visible(False)
    for row in picture.axes:
        row[0].set_ylabel("milliseconds per choice")
    picture.save(file)


def _draw_panel(axis: Any, panel: Panel) -> None:
    for name, colour in colours(("choice", "picks", "generates")).items():
        points = [
            (cell["x"], cell["methods"][name]["choice_ms"])
            for cell in panel.cells
            if name in cell["methods"]
        ]
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", ms=4, label=name, color=colour)
    axis.set(title=panel.title, xlabel=panel.x_label, xscale="log", yscale="log")
    places = [cell["x"] for cell in panel.cells]
    axis.set_xticks(places, [_short(place) for place in places])
    axis.minorticks_off()
    plain(axis)


def _short(value: float) -> str:
    """Return a number as an axis label, for example 262144 as ``"262k"``."""
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
