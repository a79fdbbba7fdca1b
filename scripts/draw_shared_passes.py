#!/usr/bin/env python3
"""Draw the picture in docs/shared-passes.md: three streams generate, and a long prompt arrives.

$ python scripts/draw_shared_passes.py > docs/shared-passes.svg
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import svg
from svg import dot, legend, rect, text

STREAMS = ("A", "B", "C", "D")
N_BATCH = 512


class Pass(NamedTuple):
    """One column of the picture: its width, the leading stream, and each stream's tokens."""

    width: int
    leader: str
    tokens: dict[str, int]
    kind: Mapping[str, str] = MappingProxyType({})  # kinds of the cells that are not single tokens


PASSES = (
    Pass(84, "A", {"A": 1, "B": 1, "C": 30}, {"C": "prompt"}),
    Pass(66, "B", {"A": 1, "B": 1, "C": 1}),
    Pass(150, "D", {"A": 1, "B": 1, "C": 1, "D": 509}, {"D": "prompt"}),
    Pass(150, "D", {"A": 1, "B": 1, "C": 1, "D": 509}, {"D": "prompt"}),
    Pass(104, "D", {"A": 1, "B": 1, "D": 182}, {"D": "prompt"}),
    Pass(84, "A", {"A": 1, "B": 1, "D": 9}, {"D": "tree"}),
    Pass(66, "B", {"A": 1, "B": 1}),
)

STYLE = svg.STYLE.format(
    light="""\
  .lane { stroke: #d1d9e0; stroke-width: 1; }
  .token { fill: #0072b2; }
  .prompt { fill: #b85000; }
  .tree { fill: #00795a; }
  .inside { fill: #ffffff; font-weight: 600; }
  .leads { fill: #ffffff; }""",
    dark="""\
    .pass { fill: #212830; }
    .lane { stroke: #3d444d; }
    .inside { fill: #ffffff; }""",
)

LEFT, TOP, ROW, CELL, GAP = 100, 84, 50, 34, 18
BOTTOM = TOP + len(STREAMS) * ROW
RIGHT = LEFT + sum(each.width + GAP for each in PASSES) - GAP


def row_of(stream: str) -> int:
    return TOP + STREAMS.index(stream) * ROW


def lanes() -> list[str]:
    parts = []
    for stream in STREAMS:
        y = row_of(stream) + CELL / 2
        parts.append(text(16, y + 5, f"stream {stream}", "name", "start"))
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y:g}" y2="{y:g}" class="lane"/>')
    return parts


def column(x: int, number: int, this: Pass) -> list[str]:
    middle = x + this.width / 2
    return [
        rect(x, TOP - 9, this.width, BOTTOM - TOP + 2, "pass"),
        text(middle, TOP - 20, f"pass {number}" if this.width > 70 else number),
        text(middle, BOTTOM + 10, sum(this.tokens.values()), "small"),
    ]


def cells(x: int, this: Pass) -> list[str]:
    parts = []
    for stream, n in this.tokens.items():
        y = row_of(stream)
        parts.append(rect(x + 5, y, this.width - 10, CELL, this.kind.get(stream, "token")))
        parts.append(text(x + this.width / 2 + 3, y + 22, n, "inside"))
        if stream == this.leader:
            parts.append(dot(x + 18, y + CELL / 2, 5, "leads"))
    return parts


def key(y: int) -> list[str]:
    parts, last = legend(
        y,
        (
            ("token", "a token of an answer", 186),
            ("prompt", "a prompt, or a part of one", 238),
            ("tree", "a choice's tree", 160),
            ("token", "leader: runs the pass for all", 0),
        ),
    )
    return [*parts, dot(last + 9, y + 9, 5, "leads")]


def picture() -> str:
    heading = "Three streams generate; a fourth arrives with a prompt of 1,200 tokens"
    columns, boxes = [], []
    x = LEFT
    for number, this in enumerate(PASSES, 1):
        columns += column(x, number, this)
        boxes += cells(x, this)
        if number == 2:
            boxes.append(text(x + this.width / 2, row_of("D") + 22, "D arrives", "small"))
        x += this.width + GAP
    parts = [
        text(16, 26, heading, "name", "start"),
        *columns,
        *lanes(),
        *boxes,
        text(16, BOTTOM + 10, "tokens", "small", "start"),
        text(RIGHT, BOTTOM + 34, f"A pass has room for {N_BATCH} tokens", "small", "end"),
        text(16, BOTTOM + 34, "Between passes, each stream gets its next token", "small", "start"),
        *key(BOTTOM + 54),
    ]
    words = (
        "Columns are passes and rows are streams. A box shows the number of a stream's tokens in a "
        "pass. Single tokens of A, B and C share passes with parts of D's prompt."
    )
    title = "How four streams share seven forward passes"
    return svg.svg(RIGHT + 16, BOTTOM + 88, title, words, STYLE, parts)


if __name__ == "__main__":
    print(picture())
