"""The aspects that questions are asked about: values, their words, and how one asks.

A file of ``texts/questions`` per aspect. Under ``@ aspect``: ``?`` instructions of a choice, ``^``
of a score, ``!`` of a predicate (``{name}`` is the value's name), ``%`` scales, a level for each
value. Under ``@ value : values that may not stand beside it``: ``~`` names, ``=`` descriptions,
``!`` statements about this value alone, ``>`` sentences that tell it. A value without sentences is
the one of messages that say nothing about the aspect.

Of every list with three lines or more, the last line is held out: training never uses it.
"""

from __future__ import annotations

import enum
import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from .phrases import Phrase, parse, read_blocks

_Line = TypeVar("_Line")

_FEWEST_TO_HOLD_OUT = 3


class Split(enum.Enum):
    """What a question consists of: of lines that training uses, or of others on purpose."""

    TRAINING = "training"
    COMBINATIONS = "combinations"
    INSTRUCTIONS = "instructions"
    NAMES = "names"
    MESSAGES = "messages"


@dataclass(frozen=True)
class Value:
    """A value of an aspect, in words."""

    key: str
    clashes: frozenset[str]
    names: tuple[str, ...]
    descriptions: tuple[Phrase, ...]
    statements: tuple[Phrase, ...]
    sentences: tuple[Phrase, ...]


@dataclass(frozen=True)
class Aspect:
    """Something that can be asked about an input.

    Attributes
    ----------
    scales : tuple of tuple of str
        The level of each value, in the order of the values; several values may share one.
    """

    key: str
    values: tuple[Value, ...]
    choices: tuple[Phrase, ...]
    scores: tuple[Phrase, ...]
    predicates: tuple[Phrase, ...]
    scales: tuple[tuple[str, ...], ...]

    def value(self, key: str) -> Value:
        """Find a value."""
        return next(value for value in self.values if value.key == key)


def index_of(lines: Sequence[_Line], rng: random.Random, *, held_out: bool) -> int:
    """Draw one of the lines: the held-out one, or another."""
    if len(lines) < _FEWEST_TO_HOLD_OUT:
        return rng.randrange(len(lines))
    return len(lines) - 1 if held_out else rng.randrange(len(lines) - 1)


def draw_line(lines: Sequence[_Line], rng: random.Random, *, held_out: bool) -> _Line:
    """Draw one of the lines as :func:`index_of` does."""
    return lines[index_of(lines, rng, held_out=held_out)]


@functools.cache
def read_aspect(name: str) -> Aspect:
    """Read ``texts/questions/<name>.txt``."""
    blocks = read_blocks(f"questions/{name}")
    head = by_mark(blocks.pop("aspect"))
    values = tuple(_value(title, lines) for title, lines in blocks.items())
    scales = tuple(tuple(_split(line)) for line in head.get("%", ()))
    for scale in scales:
        if len(scale) != len(values):
            raise ValueError(f"{name}: the scale {scale} has not a level for each value")
    return Aspect(
        key=name,
        values=values,
        choices=tuple(map(parse, head.get("?", ()))),
        scores=tuple(map(parse, head.get("^", ()))),
        predicates=tuple(map(parse, head.get("!", ()))),
        scales=scales,
    )


def by_mark(lines: Sequence[str]) -> dict[str, list[str]]:
    """Sort lines by the mark they begin with."""
    sorted_lines: dict[str, list[str]] = {}
    for line in lines:
        sorted_lines.setdefault(line[0], []).append(line[1:].strip())
    return sorted_lines


def _value(title: str, lines: Sequence[str]) -> Value:
    key, _, clashes = title.partition(":")
    marked = by_mark(lines)
    return Value(
        key=key.strip(),
        clashes=frozenset(clashes.split()),
        names=tuple(name for line in marked["~"] for name in _split(line)),
        descriptions=tuple(map(parse, marked.get("=", ()))),
        statements=tuple(map(parse, marked.get("!", ()))),
        sentences=tuple(map(parse, marked.get(">", ()))),
    )


def _split(line: str) -> list[str]:
    return [part.strip() for part in line.split(";")]
