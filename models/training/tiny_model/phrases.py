"""Phrase templates with alternatives and slots. The corpus is generated from them.

``[big|small|] dog for {person}`` has three alternatives (one of them empty) and one slot.
Alternatives can be nested. The name of a slot refers to a table of more templates.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"

SlotFiller = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class _Slot:
    name: str


@dataclass(frozen=True)
class _Alternatives:
    options: tuple[tuple[_Part, ...], ...]


_Part = str | _Slot | _Alternatives


@dataclass(frozen=True)
class Phrase:
    """A parsed template, which can be written any number of times."""

    parts: tuple[_Part, ...]

    def write(self, rng: random.Random, fill: SlotFiller) -> str:
        """Choose alternatives, fill the slots, and normalize the spaces."""
        pieces: list[str] = []
        _write(self.parts, rng, fill, pieces)
        text = " ".join("".join(pieces).split())
        for mark in (",", ".", "?", "!"):
            text = text.replace(" " + mark, mark)
        return text


@functools.cache
def parse(template: str) -> Phrase:
    """Parse a template; raise ValueError if the brackets do not match."""
    parts, end = _parse_sequence(template, 0, nested=False)
    if end != len(template):
        raise ValueError(f"stray bracket at {end} in {template!r}")
    return Phrase(parts)


def read_blocks(name: str) -> dict[str, list[str]]:
    """Read ``texts/<name>.txt``: the lines under each ``@ title``, without ``#`` comments."""
    blocks: dict[str, list[str]] = {}
    for line in (TEXTS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("@ "):
            blocks[line[2:].strip()] = lines = []
        elif line.strip() and not line.startswith("#"):
            lines.append(line.strip())
    return blocks


def read_phrases(name: str) -> dict[str, tuple[Phrase, ...]]:
    """Read ``texts/<name>.txt``, where each line under a title is a template."""
    return {title: tuple(map(parse, lines)) for title, lines in read_blocks(name).items()}


def _parse_sequence(template: str, start: int, *, nested: bool) -> tuple[tuple[_Part, ...], int]:
    parts: list[_Part] = []
    position = start
    while position < len(template):
        mark = template[position]
        if mark == "[":
            alternatives, position = _parse_alternatives(template, position + 1)
            parts.append(alternatives)
        elif mark == "{":
            end = template.index("}", position)
            parts.append(_Slot(template[position + 1 : end]))
            position = end + 1
        elif mark in "|]" and nested:
            break
        elif mark == "]":
            return tuple(parts), position
        else:
            end = position + 1
            while end < len(template) and template[end] not in ("[{|]" if nested else "[{]"):
                end += 1
            parts.append(template[position:end])
            position = end
    return tuple(parts), position


def _parse_alternatives(template: str, start: int) -> tuple[_Alternatives, int]:
    options: list[tuple[_Part, ...]] = []
    position = start
    while True:
        option, position = _parse_sequence(template, position, nested=True)
        options.append(option)
        if position >= len(template):
            raise ValueError(f"unclosed bracket in {template!r}")
        position += 1
        if template[position - 1] == "]":
            return _Alternatives(tuple(options)), position


def _write(
    parts: tuple[_Part, ...], rng: random.Random, fill: SlotFiller, pieces: list[str]
) -> None:
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, _Slot):
            pieces.append(fill(part.name, rng))
        else:
            _write(rng.choice(part.options), rng, fill, pieces)
