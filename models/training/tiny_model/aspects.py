"""The aspects that questions ask about: their values, the words for these, and instructions.

Each aspect has a file in ``texts/questions``. Lines under ``@ aspect`` are marked ``?`` (the
instructions of a choice), ``^`` (of a score), ``!`` (of a predicate, with ``{name}`` for the
value's name) or ``%`` (a scale, with one level for each value).

Lines under ``@ value : others`` are marked ``~`` (names), ``=`` (descriptions), ``!`` (statements
about only this value) or ``>`` (sentences that express the value). The others are values that may
not be options together with this one. The value without sentences belongs to messages that say
nothing about the aspect.

In every list of three or more lines, the last line is held out: training never uses it.
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
    """Which lines a question uses: only training lines, or held-out lines of one kind."""

    TRAINING = "training"
    COMBINATIONS = "combinations"
    INSTRUCTIONS = "instructions"
    NAMES = "names"
    MESSAGES = "messages"


@dataclass(frozen=True)
class Value:
    """A value of an aspect, and the words for it."""

    key: str
    clashes: frozenset[str]
    names: tuple[str, ...]
    descriptions: tuple[Phrase, ...]
    statements: tuple[Phrase, ...]
    sentences: tuple[Phrase, ...]


@dataclass(frozen=True)
class Aspect:
    """A property of an input that a question can ask about.

    Attributes
    ----------
    scales : tuple of tuple of str
        Each scale has the level of every value, in the order of the values. Values may share one.
    """

    key: str
    values: tuple[Value, ...]
    choices: tuple[Phrase, ...]
    scores: tuple[Phrase, ...]
    predicates: tuple[Phrase, ...]
    scales: tuple[tuple[str, ...], ...]

    def value(self, key: str) -> Value:
        """Return the value with a key."""
        return next(value for value in self.values if value.key == key)


def index_of(lines: Sequence[_Line], rng: random.Random, *, held_out: bool) -> int:
    """Draw the index of a line; with `held_out`, return the index of the held-out line."""
    if len(lines) < _FEWEST_TO_HOLD_OUT:
        return rng.randrange(len(lines))
    return len(lines) - 1 if held_out else rng.randrange(len(lines) - 1)


def draw_line(lines: Sequence[_Line], rng: random.Random, *, held_out: bool) -> _Line:
    """Draw a line with :func:`index_of`."""
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
            raise ValueError(f"{name}: expected a scale of {len(values)} levels, got {scale}")
    return Aspect(
        key=name,
        values=values,
        choices=tuple(map(parse, head.get("?", ()))),
        scores=tuple(map(parse, head.get("^", ()))),
        predicates=tuple(map(parse, head.get("!", ()))),
        scales=scales,
    )


def by_mark(lines: Sequence[str]) -> dict[str, list[str]]:
    """Group lines by their first character, the mark."""
    grouped: dict[str, list[str]] = {}
    for line in lines:
        grouped.setdefault(line[0], []).append(line[1:].strip())
    return grouped


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
