"""Format text for a terminal: tables, wrapped lines, bars, and escaped control characters. rich
(the extra ``cli``) lays out the text. Without it, the terminal wraps long lines."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 20
"""Minimum width of a terminal and of a table, in columns: enough for two wrapped cells."""

NARROWEST_CELL = 8
"""Minimum width of a wrapped cell, in columns."""

GAP = "  "
"""The space between two columns."""

UNLIMITED = 100_000
"""The width of output that does not go to a terminal, in columns."""

JOINERS = "\u200c\u200d"
TAGS = range(0xE0020, 0xE0080)
"""Invisible characters: after a black flag, they make it a regional flag, such as England's."""


def printable(text: str) -> str:
    """Return `text` with its control characters escaped, except line breaks, so that text of a file
    cannot move the cursor. A joiner without a character before it is escaped, because rich fails on
    it."""
    if text.isprintable():
        return text
    return "".join(
        character if _is_harmless(character, before) else ascii(character)[1:-1]
        for before, character in zip("\n" + text, text, strict=False)
    )


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun; the default plural of the noun has an ``s``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def terminal_width() -> int | None:
    """Return the width of the terminal in columns, or that in ``COLUMNS``; None, for lines of any
    length, if there is neither."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns, NARROWEST) if columns > 0 else None


def text_table(
    rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None, names: int | None = None
) -> str:
    """Return a table as lines of text.

    `rows` are the cells, row by row, each a single line; the first row has the column names. The
    first `left` columns are left-aligned, the others right-aligned. `width` is the width of the
    terminal in columns, at least 20; None = no limit. In a table that is too wide, the first
    `names` columns are wrapped (None = `left`). If that is not enough, each row is written as a
    list of names and values.
    """
    names = left if names is None else names
    cells = [[printable(" ".join(cell.splitlines())) for cell in row] for row in rows]
    console = _console(max(width, NARROWEST) if width else None)
    if console is None:
        return _aligned(cells, left)
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    least = [*(min(each, NARROWEST_CELL) for each in widths[:names]), *widths[names:]]
    if sum(least) + len(GAP) * (len(least) - 1) > console.width:
        head, *others = cells
        records = [list(zip(head, row, strict=True)) for row in others]
        return "\n\n".join(text_table(record, 2, width) for record in records)
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for column in range(len(widths)):
        table.add_column(
            justify="left" if column < left else "right", no_wrap=column >= names, overflow="fold"
        )
    for row in cells:
        table.add_row(*map(Text, row))
    return _rendered(console, table)


def fact_table(facts: Mapping[str, Sequence[str]], width: int | None) -> str:
    """Return a table of names and their lines; `width` as in :func:`text_table`."""
    rows = [
        ["" if i else name, line] for name, lines in facts.items() for i, line in enumerate(lines)
    ]
    return text_table(rows, left=2, width=width)


def wrap(text: str, width: int | None) -> str:
    """Break the lines of printable text at `width` columns; None = no limit."""
    console = _console(width)
    if console is None:
        return text
    from rich.text import Text

    return _rendered(console, Text(text, overflow="fold"))


def headline(title: str, answer: str, width: int | None) -> str:
    """Return ``title: answer``, with the answer in bold if standard output has colours."""
    console = _console(width)
    if console is None:
        return f"{title}: {answer}"
    from rich.text import Text

    return _rendered(console, Text.assemble(f"{title}: ", (answer, "bold"), overflow="fold"))


def bar(share: float, width: int) -> str:
    """Return a bar for a share from 0 to 1; a share of 1 takes `width` columns."""
    console = _console(width)
    if console is None or console.options.ascii_only:
        return "#" * round(share * width)
    from rich.bar import Bar

    return _rendered(console, Bar(1.0, 0.0, share, width=width))


def _console(width: int | None) -> Console | None:
    """Return a console for standard output; None if rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(
        # Some characters take two columns, and rich drops characters that are wider than a line.
        width=max(width, 2) if width else UNLIMITED,
        # With NO_COLOR alone, rich would still write in bold.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        force_jupyter=False,
    )


def _rendered(console: Console, renderable: Any) -> str:
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def _aligned(cells: Sequence[Sequence[str]], left: int) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        GAP.join(
            cell.ljust(size) if column < left else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _is_harmless(character: str, before: str) -> bool:
    return (
        character.isprintable()
        or character == "\n"
        or (character in JOINERS and not before.isspace())
        or ord(character) in TAGS
        or unicodedata.category(character) == "Zs"
    )
