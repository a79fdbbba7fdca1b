"""Format tables and numbers for Markdown pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def number(value: float) -> str:
    """Format a number with about three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table: the first `left` columns left-aligned, the others right-aligned."""
    aligned = [":--" if column < left else "--:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, aligned, *rows])
