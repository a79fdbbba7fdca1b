"""What a regular expression consists of, and how large it may be."""

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
"""The most characters of a pattern, and parts of it with its counted repetitions written out."""


@dataclass(frozen=True)
class Characters:
    """Any one of these."""

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
    """Refuse a pattern that is too large written out, before it is written out."""

    def size(node: Node) -> int:
        if isinstance(node, Characters):
            return sum(map(len, node.sequences))
        if isinstance(node, Repetition):
            copies = max(node.least, 1) if node.most is None else node.most
            written_out = 1 + copies * size(node.part)
            if written_out > MOST_PARTS:
                raise pattern_error(
                    pattern,
                    node.position,
                    f"written out, this repetition has {written_out} parts; "
                    f"the limit is {MOST_PARTS}",
                )
            return written_out
        return 1 + sum(map(size, node.parts))

    parts = size(root)
    if parts > MOST_PARTS:
        raise pattern_error(pattern, 0, f"the pattern has {parts} parts; the limit is {MOST_PARTS}")
