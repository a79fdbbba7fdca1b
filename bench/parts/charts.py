"""Draw charts as SVG that can be read on light and on dark pages."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OURS, SERVER, OTHER, GREY = "#d55e00", "#3b86c4", "#0a9270", "#808080"
PURPLE, PINK = "#8250df", "#c2408c"
"""Colours with a contrast of at least 3 to white and to black pages."""

# The background is transparent. Where a program ignores the media queries, all text is grey.
STYLE = """<style>
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #777777; }
.title { font-weight: 600; font-size: 15px; }
.name { font-weight: 600; }
@media (prefers-color-scheme: light) { .title { fill: #1f2328; } text { fill: #59636e; } }
@media (prefers-color-scheme: dark) { .title { fill: #f0f6fc; } text { fill: #a9b1bb; } }
</style>"""

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """An axis."""

    name: str  # what the axis shows, with the unit
    # The labelled values. Labels of the horizontal axis can have two lines.
    ticks: Mapping[float, str]
    low: float  # the values at both ends
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the low end and 1 at the high end."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


@dataclass
class Panel:
    """A chart with two axes."""

    title: str
    x: Scale
    y: Scale
    left: float = 64  # the room for the labels of the vertical axis
    width: float = 470  # the size of the whole panel
    height: float = 312
    marks: list[str] = field(default_factory=list)

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """The left, top, right and bottom edge of the plot."""
        return self.left, 58.0, self.width - 16.0, self.height - 62.0

    def at(self, point: Point) -> Point:
        """Return the place of a point in pixels."""
        left, top, right, bottom = self.edges
        return (
            left + self.x.share(point[0]) * (right - left),
            bottom - self.y.share(point[1]) * (bottom - top),
        )

    def line(self, points: Sequence[Point], colour: str, dashes: str = "none") -> None:
        """Draw a line with a dot at each point."""
        path = " ".join("{:.1f},{:.1f}".format(*self.at(point)) for point in points)
        self.marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dashes}"/>'
        )
        self.dots(points, colour)

    def dots(self, points: Sequence[Point], colour: str, radius: float = 4.5) -> None:
        for x, y in map(self.at, points):
            self.marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def bar(self, begin: Point, end: Point, colour: str, width: float, opacity: float) -> None:
        (x1, y1), (x2, y2) = self.at(begin), self.at(end)
        self.marks.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}" stroke-opacity="{opacity}"/>'
        )

    def label(
        self, point: Point, words: str, colour: str = "", anchor: str = "start", dy: float = 5
    ) -> None:
        """Write words beside a point; with a colour they are the name of a line."""
        x, y = self.at(point)
        x += {"start": 10, "middle": 0, "end": -10}[anchor]
        self.marks.append(text(x, y + dy, words, anchor, "name" if colour else "", colour))

    def svg(self) -> str:
        """Return the panel without the outer element."""
        left, _, right, bottom = self.edges
        parts = [text(0, 16, self.title, kind="title"), text(0, 38, self.y.name)]
        for value, words in self.y.ticks.items():
            _, y = self.at((self.x.low, value))
            parts += [
                f'<path d="M{left} {y:.1f}H{right}" stroke="{GREY}" stroke-opacity="0.3"/>',
                text(left - 8, y + 5, words, "end"),
            ]
        for value, words in self.x.ticks.items():
            x, _ = self.at((value, self.y.low))
            parts += [
                f'<path d="M{x:.1f} {bottom}v5" stroke="{GREY}"/>',
                *(
                    text(x, bottom + 20 + 17 * i, line, "middle")
                    for i, line in enumerate(words.splitlines())
                ),
            ]
        lines = max(len(words.splitlines()) for words in self.x.ticks.values())
        parts.append(text((left + right) / 2, bottom + 24 + 17 * lines, self.x.name, "middle"))
        return "\n".join([*parts, *self.marks])


def text(
    x: float, y: float, words: str, anchor: str = "start", kind: str = "", colour: str = ""
) -> str:
    style = f' style="fill: {colour}"' if colour else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{style}>'
        f"{html.escape(words)}</text>"
    )


def picture(panels: Sequence[Panel], title: str) -> str:
    """Return an SVG with panels of the same size in at most two columns."""
    columns, gap = min(len(panels), 2), 24.0
    width, height = panels[0].width + gap, panels[0].height + gap
    placed = [
        f'<g transform="translate({i % columns * width:g} {i // columns * height:g})">\n'
        f"{panel.svg()}\n</g>"
        for i, panel in enumerate(panels)
    ]
    wide, high = width * columns - gap, height * math.ceil(len(panels) / columns) - gap
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        f'width="{wide:g}" height="{high:g}" role="img">'
    )
    return "\n".join([head, f"<title>{html.escape(title)}</title>", STYLE, *placed, "</svg>\n"])
