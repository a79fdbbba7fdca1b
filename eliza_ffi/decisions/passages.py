"""The passages of an input, and the input without each of them.

A passage is a sentence of a text. In a conversation, it is a sentence of a message, or a whole
message with one sentence or with tool calls. In other JSON, it is a field of the object or an item
of the array, or a sentence of its string. If there are more than :data:`MAX_PASSAGES`, neighbours
are joined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .prompts import input_text, is_conversation, turn_text

MAX_PASSAGES = 32
"""The maximum number of passages of an input."""

_QUOTES = "[\"'\u201d\u2019\u300d\u300f\uff09)\\]]*"
_END = re.compile(
    rf"(?P<stop>[.!?\u2026]+){_QUOTES}\s+(?=[^\sa-z])"  # no sentence begins with a small letter
    rf"|[\u3002\uff01\uff1f]+{_QUOTES}\s*"  # in Chinese and Japanese, without a space
    r"|\s*\n\s*"
)
_SHORT = re.compile(r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vs)$")
"""Initials and titles, whose full stop ends no sentence."""


@dataclass(frozen=True)
class Cut:
    """A passage, its place in the text of the input, in characters, and the text without it."""

    start: int
    end: int
    text: str
    rest: str


@dataclass(frozen=True)
class _Part:
    """A passage, or several with the text around them; it vanishes with the last of them."""

    text: str = ""
    after: str = ""  # stands between this and the next one
    inside: Sequence[_Part] = ()
    before: str = ""
    behind: str = ""


@dataclass
class _Writer:
    """Writes parts, except the passages with the numbers `without`; keeps the places of all."""

    without: range = range(0)
    places: list[tuple[int, int]] = field(default_factory=list)
    n: int = 0

    def write(self, part: _Part, begin: int = 0) -> str:
        if not part.inside:
            self.n += 1
            self.places.append((begin, begin + len(part.text)))
            return "" if self.n - 1 in self.without else part.text
        written, between = "", ""
        for each in part.inside:
            place = begin + len(part.before) + len(written) + len(between)
            if text := self.write(each, place):
                written += between + text
                between = each.after
        return part.before + written + part.behind if written else ""


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, without the spaces between them."""
    found, begin = [], len(text) - len(text.lstrip())
    for match in _END.finditer(text, begin):
        if match["stop"] == "." and _SHORT.search(text[begin : match.start()]):
            continue
        end = match.start() + len(match[0].rstrip())
        if end > begin:
            found.append((begin, end))
        begin = match.end()
    end = len(text.rstrip())
    return [*found, (begin, end)] if end > begin else found


def cuts(input: Any, at_most: int = MAX_PASSAGES) -> list[Cut]:
    """Return the passages of an input for :func:`~eliza_ffi.decisions.prompts.input_text`.

    There are none if the input has fewer than two sentences or fields, because nothing would
    remain.
    """
    whole, writer = _parts(input), _Writer()
    text = writer.write(whole)
    places, found = writer.places, []
    if (n := len(places)) < 2:
        return []
    n_cuts = min(n, at_most)
    for i in range(n_cuts):
        numbers = range(i * n // n_cuts, (i + 1) * n // n_cuts)
        start, end = places[numbers[0]][0], places[numbers[-1]][1]
        found.append(Cut(start, end, text[start:end], _Writer(numbers).write(whole)))
    return found


def _parts(input: Any) -> _Part:
    if isinstance(input, str):
        return _of_text(input)
    if is_conversation(input):
        turns = [turn_text(each) for each in input]
        said = [each.get("content") for each in input]
        return _Part(
            inside=[
                _of_text(content, turn[: -len(content)], after="\n")
                if isinstance(content, str) and content and turn.endswith(content)
                else _Part(turn, "\n")
                for turn, content in zip(turns, said, strict=True)
            ]
        )
    if isinstance(input, Mapping) and input:
        fields = [_of_json({name: value}, value) for name, value in input.items()]
        return _Part(inside=fields, before="{", behind="}")
    if isinstance(input, list | tuple) and input:
        return _Part(inside=[_of_json([each], each) for each in input], before="[", behind="]")
    return _Part(input_text(input))


def _of_json(alone: Any, value: Any) -> _Part:
    """Return a field of an object or an item of an array, which `alone` has without the others."""
    text = json.dumps(alone, ensure_ascii=False)[1:-1]
    if not isinstance(value, str):
        return _Part(text, ", ")
    escaped = json.dumps(value, ensure_ascii=False)[1:-1]
    return _of_text(value, text[: -len(escaped) - 1], '"', ", ", is_escaped=True)


def _of_text(
    text: str, before: str = "", behind: str = "", after: str = "", *, is_escaped: bool = False
) -> _Part:
    def written(piece: str) -> str:
        return json.dumps(piece, ensure_ascii=False)[1:-1] if is_escaped else piece

    found = sentences(text)
    if len(found) < 2:
        return _Part(before + written(text) + behind, after)
    starts = [start for start, _ in found]
    inside = [
        _Part(written(text[start:end]), written(text[end:following]))
        for (start, end), following in zip(found, [*starts[1:], len(text)], strict=True)
    ]
    before += written(text[: starts[0]])
    return _Part(after=after, inside=inside, before=before, behind=inside[-1].after + behind)
