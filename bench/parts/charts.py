"""Results as pictures: the time of a choice over what it grows with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.pictures import Picture, plain

from ..methods import colours

__all__ = ["Panel", "draw", "plot_peers"]


@dataclass(frozen=True)
class Panel:
    """One picture of several.

    Attributes
    ----------
    title, x_label : str
    cells : sequence of dict
        Cells of results, each with an ``x``.
    """

    title: str
    x_label: str
    cells: Sequence[dict[str, Any]]


def plot_peers(results: dict[str, Any], file: Path) -> None:
    """Draw the time of a choice over the number of choices, one panel for each model."""
    models = dict.fromkeys(cell["model"] for cell in results["cells"])
    panels = [
        Panel(
            model,
            "choices",
            [{**cell, "x": cell["choices"]} for cell in results["cells"] if cell["model"] == model],
        )
        for model in models
    ]
    draw(panels, file, columns=len(panels))


def draw(panels: Sequence[Panel], file: Path, *, columns: int) -> None:
    """Draw panels of one scale of milliseconds, both axes logarithmic."""
    rows = math.ceil(len(panels) / columns)
    picture = Picture(rows, columns, (3.4 * columns, 3.2 * rows + 0.5), sharey=True)
    for place, axis in enumerate(picture.axes.flat):
        if place < len(panels):
            _draw_panel(axis, panels[place])
        else:
            axis.set_visible(False)
    for row in picture.axes:
        row[0].set_ylabel("milliseconds a choice")
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
    """Return a number as an axis shows it: 262144 as 262k."""
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
