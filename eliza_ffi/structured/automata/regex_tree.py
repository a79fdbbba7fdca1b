"""The syntax tree of a regular expression, and the limit on its size."""

from __future__ import annotations

from dataclasses import dataclass

from .regex_cursor import pattern_error
from .utf8_ranges import ByteRanges

__all__ = [
    "MOST_PARTS",
    "Alternation",
    "Characters",
    "Node",
    "Repetition",
    "Sequence",
    "check_size",
]

MOST_PARTS = 2**18
"""The maximum number of a pattern's characters, and of its parts after expanding repetitions."""


@dataclass(frozen=True)
class Characters:
    """A set of characters that match at one position."""

    sequences: tuple[ByteRanges, ...]


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    part: Node
    least: int
    most: int | None
    position: int


Node = Characters | Sequence | Alternation | Repetition


def check_size(root: Node, pattern: str) -> None:
    """Reject a pattern that is too large once its repetitions are expanded.

    Raises
    ------
    InvalidArgumentError
        If it has more than `MOST_PARTS` parts.
    """

    def size(node: Node) -> int:
        if isinstance(node, Characters):
            return sum(map(len, node.sequences))
        if isinstance(node, Repetition):
            copies = max(node.least, 1) if node.most is None else node.most
            expanded = 1 + copies * size(node.part)
            if expanded > MOST_PARTS:
                raise pattern_error(
                    pattern,
                    node.position,
                    f"expected at most {MOST_PARTS} parts, got {expanded} after expanding this "
                    f"repetition",
                )
            return expanded
        return 1 + sum(map(size, node.parts))

    parts = size(root)
    if parts > MOST_PARTS:
        raise pattern_error(pattern, 0, f"expected at most {MOST_PARTS} parts, got {parts}")
