"""A reading position in a regular expression, and errors that name the position."""

from __future__ import annotations

import re

from ...errors import InvalidArgumentError

__all__ = ["Cursor", "pattern_error", "shortened", "shown"]


class Cursor:
    """A pattern and the current reading position.

    Attributes
    ----------
    pattern : str
    at : int
        The index of the next character.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def next(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self.pattern[self.at : self.at + 1]

    def starts(self, text: str) -> bool:
        """Return whether the rest of the pattern starts with this string."""
        return self.pattern.startswith(text, self.at)

    def skip(self, character: str) -> bool:
        """Skip a character if it is next, and return whether it was."""
        found = self.starts(character)
        self.at += found
        return found

    def match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Match an expression at the current position, without moving the position."""
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
