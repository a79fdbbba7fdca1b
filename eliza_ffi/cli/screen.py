"""What a terminal can show, and names with what is to be said of them in its width."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from ..measuring.terminal_text import pad, shorten, text_width, wrap

__all__ = ["Screen", "fact_lines", "terminal_width"]

NARROWEST = 20
"""Columns: in less there is nothing to line up."""

EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Screen:
    """What a terminal, or a file, can show.

    Attributes
    ----------
    width : int
        In columns.
    blocks : bool
        Whether bars are drawn with block characters; else with ``#``.
    colour : bool
        Whether there are colours: on a terminal, or where ``FORCE_COLOR`` asks for them, but never
        against ``NO_COLOR``.
    """

    width: int = 80
    blocks: bool = False
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Return what a stream can show."""
        return cls(
            width=max(terminal_width() or 80, 40),
            blocks=_can_write(stream, EIGHTHS + "█"),
            colour=_has_colour(stream),
        )

    def bar(self, share: float, width: int) -> str:
        """Return a bar for a share of 0 to 1; whatever is more than nothing shows."""
        if not self.blocks:
            return "#" * round(share * width)
        eighths = round(share * width * 8)
        return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()

    def bold(self, text: str) -> str:
        """Return a text in bold, where that can be shown."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text


def terminal_width() -> int | None:
    """Return the columns of the terminal that is written to, or those that ``COLUMNS`` tells.

    None where output is written to something else and nothing is told: lines may be of any length.
    """
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns, NARROWEST) if columns > 0 else None


def fact_lines(facts: Mapping[str, Sequence[str]], width: int | None) -> Iterator[str]:
    """Yield names, each with the lines that are said of it behind it.

    Parameters
    ----------
    facts
        Lines by name, all printable.
    width
        In columns; longer lines go on below, further in than they began. None = there is no limit.
    """
    names = {name: name if width is None else shorten(name, width // 2) for name in facts}
    indent = max(map(text_width, names.values())) + 2
    for name, said in facts.items():
        label = names[name]
        for line in said:
            for part in [line] if width is None else _hanging(line, width - indent):
                yield f"{pad(label, indent)}{part}".rstrip()
                label = ""


def _hanging(line: str, width: int) -> list[str]:
    """Return a line as lines of at most a width, the second and further ones indented."""
    if text_width(line) <= width:
        return [line]
    first, *others = wrap(line, width - 2)
    return [first, *(f"  {other}" for other in others)]


def _has_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") not in (None, "dumb")


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
