"""Read tool calls that are written in a model's format: whole ones, and one that the model is still
writing, as pieces of JSON."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ..errors import InvalidArgumentError
from ..structured.json_text import JsonScanner, reject_constant
from ..structured.schema_walk import JSON_TYPES, SchemaDocument, json_type
from .call_format import Call, CallFormat, Hole, Json, Member, Members
from .thinking import n_held
from .tools import Tool

ORDER = (*JSON_TYPES, "quoted")  # strings come last, because any text can be read as a string


STRICT_JSON = json.JSONDecoder(parse_constant=reject_constant)
READERS: dict[str, Callable[[str], Any]] = {"json": STRICT_JSON.decode, "python": ast.literal_eval}


def parse_call(format: CallFormat, text: str, tools: Sequence[Tool]) -> list[Call]:
    """Read the tool calls of a turn; the inverse of `render_call`. A value such as ``42`` is a
    number if the schema allows one. Raise InvalidArgumentError if the text is not in the format, or
    calls another tool."""
    try:
        return _CallReader(format, text, tools).calls()
    except _Mismatch as mismatch:
        position, expected = mismatch.args
        found = text[position : position + 40] or "the end"
        raise InvalidArgumentError(
            f"the tool calls are not in the model's format at character {position}: "
            f"expected {expected}, got {found!r}"
        ) from None
    except RecursionError:
        raise InvalidArgumentError("the arguments of the tool calls are nested too deep") from None


class _Mismatch(Exception):  # noqa: N818 - an outcome
    """The text differs from the format at a position."""


class _CallReader:
    def __init__(self, format: CallFormat, text: str, tools: Sequence[Tool]) -> None:
        self.format = format
        self.text = text
        self.tools = {tool.name: tool for tool in tools}
        self.position = 0
        self.document = SchemaDocument({})  # the schema of the arguments

    def calls(self) -> list[Call]:
        self.fixed(self.format.open)
        calls = [self.call()]
        while self.text[self.position :] != self.format.close:
            if not self.format.parallel:
                self.fail(repr(self.format.close))
            self.fixed(self.format.between)
            calls.append(self.call())
        return calls

    def call(self) -> Call:
        pieces = (*self.format.call, "")
        read: dict[Hole, Any] = {}
        for piece, following in itertools.pairwise(pieces):
            after = following if isinstance(following, str) else ""
            if isinstance(piece, str):
                self.fixed(piece)
            elif piece is Hole.NAME:
                names = [read[piece]] if piece in read else [*self.tools]
                read[piece] = self.name(names, after)
                self.document = SchemaDocument(self.tools[read[piece]].parameters)
            elif piece is Hole.ARGUMENTS:
                read[piece] = self.arguments(after)
            else:
                read[piece] = self.up_to(after)
        return Call(read[Hole.NAME], read[Hole.ARGUMENTS], read.get(Hole.ID))

    def name(self, names: Sequence[str], after: str) -> str:
        for name in sorted(names, key=len, reverse=True):  # a name may begin with another name
            if self.starts(name + after):
                self.fixed(name)
                return name
        self.fail(" or ".join(map(repr, names)))

    def arguments(self, after: str) -> Any:
        if isinstance(self.format.arguments, Members):
            return self.members(self.format.arguments, True, self.document.root, after)
        try:
            value, end = STRICT_JSON.raw_decode(self.text, self.position)
        except (ValueError, RecursionError):
            value, end = None, self.position
        if not isinstance(value, dict):
            self.fail("a JSON object")
        self.position = end
        return value

    # ---- members -------------------------------------------------------------------------------

    def members(self, members: Members, keyed: bool, schema: Any, after: str) -> Any:
        """Read the members of an object or the items of an array, up to the fixed text `after`."""
        names: dict[str, Any] = {}
        items: list[Any] = []
        while self.another(members, members.between if names or items else "", after):
            self.fixed(members.between if names or items else "")
            kinds = self.opening(members)
            if keyed:
                key, kinds = self.key(members)
                inner = self.document.inside(schema, key)
                names[key] = self.value(members, kinds, key, inner, after)
            else:
                inner = self.document.inside(schema, len(items))
                items.append(self.value(members, kinds, "", inner, after))
        return names if keyed else items

    def another(self, members: Members, between: str, after: str) -> bool:
        """Return whether another member follows, or `after`; if both could begin here, the longer
        text."""
        starts = [between + member.opening for member in members.of_type.values()]
        lengths = [len(start) for start in starts if self.starts(start)]
        ends = self.starts(after)
        if not lengths and not ends:
            self.fail(f"{after!r} or another value")
        return not ends or max(lengths, default=-1) > len(after)

    def opening(self, members: Members) -> list[str]:
        """Read the fixed text before a member, and return the types that begin with it."""
        openings = {kind: member.opening for kind, member in members.of_type.items()}
        longest = max(filter(self.starts, openings.values()), key=len)
        self.fixed(longest)
        return [kind for kind, opening in openings.items() if opening == longest]

    def key(self, members: Members) -> tuple[str, list[str]]:
        """Read a key and the fixed text after it, and return the types that have this text."""
        middles = {kind: member.middle for kind, member in members.of_type.items()}
        found = {middle: self.text.find(middle, self.position) for middle in middles.values()}
        ends = [(end, -len(middle), middle) for middle, end in found.items() if end >= 0]
        if not ends:
            self.fail(f"a name and {next(iter(found))!r}")
        end, _, longest = min(ends)
        key = self.text[self.position : end]
        self.position = end + len(longest)
        return key, [kind for kind, middle in middles.items() if middle == longest]

    def value(
        self, members: Members, kinds: Sequence[str], key: str, schema: Any, after: str
    ) -> Any:
        """Read a value of any of `kinds`; types that the schema allows are tried first."""
        allowed = self.document.types(schema)
        start, mismatch = self.position, _Mismatch(self.position, "a value")
        for kind in sorted(kinds, key=lambda kind: (kind not in allowed, ORDER.index(kind))):
            member, self.position = members.of_type[kind], start
            closing = member.closing(key)
            try:
                if member.value == "members":
                    keyed = kind == "object"
                    inner = self.format.arguments if keyed else self.format.items
                    assert isinstance(inner, Members)
                    value = self.members(inner, keyed, schema, closing)
                else:
                    stops = (closing,) if closing else (members.between, after)
                    value = self.scalar(kind, member.value, stops)
                self.fixed(closing)
                return value
            except _Mismatch as error:
                mismatch = error
        raise mismatch

    def scalar(self, kind: str, writing: str, stops: Sequence[str]) -> Any:
        """Read the shortest valid value that is followed by one of the strings in `stops`."""
        start = self.position
        for end in range(start, len(self.text) + 1):
            if not any(self.text.startswith(stop, end) for stop in stops):
                continue
            self.position = end
            if writing == "raw":
                return self.text[start:end]
            for value in _values(writing, kind, self.text[start:end]):
                return value
        self.position = start
        self.fail(f"a value of the type {kind} and {stops[0]!r}")

    # ---- fixed text ----------------------------------------------------------------------------

    def starts(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def fixed(self, text: str) -> None:
        if not self.starts(text):
            self.fail(repr(text))
        self.position += len(text)

    def up_to(self, after: str) -> str:
        start, end = self.position, self.text.find(after, self.position)
        if end < 0:
            self.fail(repr(after))
        self.position = end
        return self.text[start:end]

    def fail(self, expected: str) -> NoReturn:
        raise _Mismatch(self.position, expected)


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
    while (end := scanner.push(text)) < 0:
        text = yield text
    return text[: end - 1]


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
            begin, values = 0, list[Any]()
            while not values:
                ends = [end for stop in stops if (end := text.find(stop, begin)) >= 0]
                if ends:
                    end = min(ends)
                    begin, values = end + 1, _values(member.value, kind, text[:end])
                else:
                    begin = max(begin, len(text) - max(map(len, stops)) + 1)
                    text += yield piece
                    piece = ""
            piece += json.dumps(values[0], ensure_ascii=False)
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


def _values(writing: str, kind: str, text: str) -> list[Any]:
    """Return the value of a text in a list; empty if it is not a complete value of the type."""
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        value = READERS[writing](text)
        return [value] if json_type(value) == kind else []
    return []


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
