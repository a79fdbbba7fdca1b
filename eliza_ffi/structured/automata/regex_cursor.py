"""A place in a regular expression, and errors that name it."""

from __future__ import annotations

import re

from ...errors import InvalidArgumentError

__all__ = ["Cursor", "pattern_error", "shortened", "shown"]


class Cursor:
    """A pattern and how far it is read.

    Attributes
    ----------
    pattern : str
    at : int
        The next character.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def next(self) -> str:
        """Return the next character, empty at the end."""
        return self.pattern[self.at : self.at + 1]

    def starts(self, text: str) -> bool:
        """Return whether a text comes next."""
        return self.pattern.startswith(text, self.at)

    def skip(self, character: str) -> bool:
        """Read a character if it is the next; return whether it was."""
        found = self.starts(character)
        self.at += found
        return found

    def match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Match what comes next, without reading it."""
        return expression.match(self.pattern, self.at)

    def error(self, position: int, what: str) -> InvalidArgumentError:
        return pattern_error(self.pattern, position, what)


def pattern_error(pattern: str, position: int, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot compile the pattern {shown(pattern)}, position {position}: {what}"
    )


def shown(pattern: str) -> str:
    return repr(shortened(pattern))


def shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
