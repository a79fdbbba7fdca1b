"""Convert the arguments of a tool call to pieces of JSON while the model writes them. The closing
brace is held back, so that the pieces of a truncated call are never valid JSON."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from ..structured.json_text import JsonScanner
from ..structured.schema_walk import SchemaDocument, json_type
from .call_format import CallFormat, Json, Member, Members
from .call_reader import READERS
from .held_text import n_held


class CallPieces:
    """The pieces of JSON of one call's arguments. `before` and `after` are the fixed text around
    them, and `text` has all pieces so far."""

    def __init__(
        self, format: CallFormat, schema: Mapping[str, Any], before: str, after: str
    ) -> None:
        self.text = ""
        self._n_before = len(before)
        self._is_json = isinstance(format.arguments, Json)
        if isinstance(format.arguments, Members):
            self._reader = _members(format.arguments, schema, after)
        else:
            self._reader = _json()
        next(self._reader)
        self._is_reading = True

    def push(self, text: str) -> str:
        """Add text of the call, and return the next piece, which may be empty."""
        n_skipped = min(self._n_before, len(text))
        self._n_before -= n_skipped
        text = text[n_skipped:]
        if not text or not self._is_reading:
            return ""
        try:
            piece = self._reader.send(text)
        except StopIteration as end:
            piece = end.value
            self._is_reading = False
        self.text += piece
        return piece

    def finish(self, arguments: Mapping[str, Any]) -> str:
        """End the call with these arguments, and return the last piece."""
        if self._is_json:
            piece = "}"
        else:
            whole = json.dumps(arguments, ensure_ascii=False)
            assert whole.startswith(self.text), "the pieces differ from the arguments"
            piece = whole[len(self.text) :]
        self.text += piece
        return piece


_Reader = Generator[str, str, str]
"""Takes text, and gives pieces; its return value is the last piece that it can give."""


def _json() -> _Reader:
    """Pass a JSON object on, except for its closing brace."""
    scanner = JsonScanner()
    text = yield ""
    while True:
        for i, char in enumerate(text):
            scanner.push(char)
            if char == "}" and scanner.depth == 0:
                return text[:i]
        text = yield text


def _members(members: Members, schema: Mapping[str, Any], after: str) -> _Reader:
    """Convert arguments that the model writes one by one to JSON."""
    piece, between, comma = "{", "", ""
    text = yield ""
    while True:
        starts = _starts(members, schema, between)
        while any(each != text and each.startswith(text) for each in (*starts, after)):
            text += yield piece
            piece = ""
        found = [each for start, each in starts.items() if text.startswith(start)]
        if len(found) != 1 or len(found[0]) != 1 or (after and text.startswith(after)):
            return piece  # the end of the arguments, or the value could have several types
        ((name, kind, member),) = found[0]
        text = text[len(between + member.until_value(name)) :]
        piece += f"{comma}{json.dumps(name, ensure_ascii=False)}: "
        between, comma = members.between, ", "
        closing = member.closing(name)
        if member.value == "raw" and closing:
            piece += '"'
            while (end := text.find(closing)) < 0:
                n = n_held(text, closing)
                piece += _escaped(text[: len(text) - n])
                text = text[len(text) - n :] + (yield piece)
                piece = ""
            piece += _escaped(text[:end]) + '"'
        elif member.value in READERS and (closing or (between and after)):
            stops = (closing,) if closing else (between, after)
            begin, value = 0, ""
            while not value:
                ends = [end for stop in stops if (end := text.find(stop, begin)) >= 0]
                if ends:
                    end = min(ends)
                    begin, value = end + 1, _value(member.value, kind, text[:end])
                else:
                    begin = max(begin, len(text) - max(map(len, stops)) + 1)
                    text += yield piece
                    piece = ""
            piece += value
        else:
            return piece
        text = text[end + len(closing) :]
        if not text:
            text = yield piece
            piece = ""


def _starts(
    members: Members, schema: Mapping[str, Any], between: str
) -> dict[str, list[tuple[str, str, Member]]]:
    """Return the fixed strings before values, with the names, types and formats of the values."""
    starts: dict[str, list[tuple[str, str, Member]]] = {}
    document = SchemaDocument(schema)
    names = (name for form in document.object_forms(schema) for name in form.names)
    for name in dict.fromkeys(names):
        allowed = document.types(document.inside(schema, name))
        for kind, member in members.of_types(allowed).items():
            start = between + member.until_value(name)
            starts.setdefault(start, []).append((name, kind, member))
    return starts


def _value(writing: str, kind: str, text: str) -> str:
    """Return a value as JSON; empty if the text is not a complete value of the type."""
    try:
        value = READERS[writing](text)
        if json_type(value) == kind:
            return json.dumps(value, ensure_ascii=False)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    return ""


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
