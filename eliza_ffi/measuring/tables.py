"""Tables for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from .terminal_text import pad, printable, shorten, text_width

__all__ = ["text_table"]

GAP = "  "
NARROWEST = 8
"""Columns of a terminal that a cell keeps where it is cut."""


def text_table(
    rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None, names: int | None = None
) -> str:
    """Return lines of columns as wide as their widest cell.

    Parameters
    ----------
    rows
        Of cells, each of one line.
    left
        The first columns, which are aligned left; the others are aligned right.
    width
        Of the terminal. In a table that is wider, the names of the rows are cut, but not below half
        of this, and what still does not fit beside them follows below, beside them again. None =
        there is no limit.
    names
        The first columns, which say what a row is of; None = those that are aligned left.
    """
    names = left if names is None else names
    cells = [[printable(" ".join(cell.splitlines())) for cell in row] for row in rows]
    blocks = [slice(names, None)]
    if width is not None:
        others = _widths([row[names:] for row in cells])
        room = max(width // 2, width - sum(len(GAP) + other for other in others))
        cut = _cut([row[:names] for row in cells], room)
        cells = [[*name, *row[names:]] for name, row in zip(cut, cells, strict=True)]
        blocks = _blocks(others, width - _line_width(_widths(cut)), names)
    widths = _widths(cells)
    padded = [
        [
            pad(cell, size, right=column >= left)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        for row in cells
    ]
    return "\n\n".join(
        "\n".join(GAP.join([*row[:names], *row[block]]).rstrip() for row in padded)
        for block in blocks
    )


def _cut(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """Return the rows with cells cut so that they fit, those of the widest columns."""
    widths = _widths(rows)
    while _line_width(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return [
        [
            cell if text_width(cell) <= width else shorten(cell, width)
            for cell, width in zip(row, widths, strict=True)
        ]
        for row in rows
    ]


def _blocks(widths: Sequence[int], room: int, first: int) -> list[slice]:
    """Return which of the columns from the first on stand beside each other, behind gaps."""
    blocks = []
    begin, used = first, 0
    for column, width in enumerate(widths, first):
        used += len(GAP) + width
        if used > room and column > begin:
            blocks.append(slice(begin, column))
            begin, used = column, len(GAP) + width
    return [*blocks, slice(begin, None)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(text_width, column)) for column in zip(*rows, strict=True)]


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)
