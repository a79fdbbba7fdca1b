"""Figures as text: numbers, tables for documents and tables for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .terminal_text import pad, printable, shorten, text_width

__all__ = ["markdown_table", "number", "text_table"]

GAP = "  "
NARROWEST = 8
"""Columns of a terminal that a cell keeps where it is cut."""


def number(value: float) -> str:
    """Return three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table, its first `left` columns aligned left and the others right."""
    aligned = [":--" if column < left else "--:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, aligned, *rows])


def text_table(rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None) -> str:
    """Return lines of columns as wide as their widest cell, aligned as those of Markdown.

    Parameters
    ----------
    rows
        Of cells, each of one line.
    left
        The first columns, which say what a row is of and are aligned left; the others are aligned
        right.
    width
        Of the terminal. In a table that is wider, the first columns are cut, but not below half of
        this, and what still does not fit beside them follows below, beside them again. None = there
        is no limit.
    """
    cells = [[printable(" ".join(cell.splitlines())) for cell in row] for row in rows]
    names, others = [row[:left] for row in cells], [row[left:] for row in cells]
    blocks = [slice(None)]
    if width is not None:
        sizes = _widths(others)
        names = _cut(names, max(width // 2, width - sum(len(GAP) + size for size in sizes)))
        blocks = _blocks(sizes, width - _line_width(_widths(names)))
    return "\n\n".join(
        _aligned([[*name, *row[block]] for name, row in zip(names, others, strict=True)], left)
        for block in blocks
    )


def _aligned(rows: Sequence[Sequence[str]], left: int) -> str:
    widths = _widths(rows)
    return "\n".join(
        GAP.join(
            pad(cell, width, right=column >= left)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
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


def _blocks(widths: Sequence[int], room: int) -> list[slice]:
    """Return which columns stand beside each other, each behind a gap; at least one does."""
    blocks = []
    begin = used = 0
    for column, width in enumerate(widths):
        used += len(GAP) + width
        if used > room and column > begin:
            blocks.append(slice(begin, column))
            begin, used = column, len(GAP) + width
    return [*blocks, slice(begin, None)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(text_width, column)) for column in zip(*rows, strict=True)]


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)
