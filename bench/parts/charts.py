"""Draw results as pictures: a figure of each method as a function of one parameter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eliza_ffi.decisions.learning.pictures import plain
from eliza_ffi.errors import NotSupportedError

Points = Sequence[tuple[float, Mapping[str, Any]]]
"""The values of the parameter, each with the figures of all methods."""


def draw_if_possible(
    draw: Callable[[dict[str, Any], Path], None], results: dict[str, Any], file: Path
) -> None:
    """Draw a picture; without matplotlib, only report that it was not drawn."""
    try:
        draw(results, file)
    except NotSupportedError as error:
        print(f"{file}: not drawn: {error}", file=sys.stderr)


def draw_lines(
    axis: Any,
    points: Points,
    colours: Mapping[str, str],
    figure: Callable[[Any], float],
    **settings: Any,
) -> None:
    """Draw a line for each method.

    Parameters
    ----------
    colours
        The colours of the drawn methods by name.
    figure
        Takes the figures of a method; returns the drawn one.
    **settings
        Settings of the axis. By default, both scales are logarithmic.
    """
    for name, colour in colours.items():
        drawn = [(x, figure(methods[name])) for x, methods in points if name in methods]
        if drawn:
            axis.plot(*zip(*drawn, strict=True), marker="o", ms=4, label=name, color=colour)
    axis.set(**{"xscale": "log", "yscale": "log", **settings})
    axis.set_xticks([x for x, _ in points], [_short(x) for x, _ in points])
    axis.minorticks_off()
    plain(axis)


def _short(value: float) -> str:
    """Return a number as an axis label, for example 262144 as ``"262k"``."""
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
