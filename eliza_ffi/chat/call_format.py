"""The format in which a model writes tool calls: fixed text with holes. The arguments are one JSON
object, or each is written on its own, as in ``<parameter=city>Rome</parameter>``."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from ..errors import InvalidArgumentError
from ..structured.schema_walk import json_type


class Hole(Enum):
    """A place in fixed text where something is filled in."""

    NAME = "name"
    """The name of the tool."""
    ID = "id"
    """The id of the call: nine letters and digits, because Mistral's templates reject others."""
    INDEX = "index"
    """The number of the call."""
    ARGUMENTS = "arguments"
    """All arguments."""
    KEY = "key"
    """The name of one argument."""
    VALUE = "value"
    """The value of one argument."""


Pieces: TypeAlias = "tuple[str | Hole, ...]"
"""Fixed text (str) and holes in their order."""


@dataclass(frozen=True)
class Json:
    """Arguments as one JSON object."""

    indent: int | None = None  # spaces for each level; None = all on one line
    margin: int = 0  # spaces before each line except the first
    compact: bool = False  # without spaces after commas and colons
    ascii: bool = False  # other characters are escaped

    def write(self, value: Any) -> str:
        separators = (",", ":") if self.compact else None
        text = json.dumps(value, indent=self.indent, separators=separators, ensure_ascii=self.ascii)
        return text.replace("\n", "\n" + " " * self.margin)


@dataclass(frozen=True)
class Member:
    """How an argument or array item of one JSON type is written: ``"raw"`` (a string without
    quotes or escapes), ``"json"``, ``"python"`` (as ``str`` writes it) or ``"members"`` (each on
    its own)."""

    pieces: Pieces  # fixed text, `Hole.KEY` (except for items) and one `Hole.VALUE`
    value: str

    @property
    def opening(self) -> str:
        """The fixed text before the key, or before the value of an item."""
        return self.pieces[0] if isinstance(self.pieces[0], str) else ""

    @property
    def middle(self) -> str:
        """The fixed text between key and value."""
        start, end = self.pieces.index(Hole.KEY) + 1, self.pieces.index(Hole.VALUE)
        return fill_pieces(self.pieces[start:end], {})

    def until_value(self, key: str) -> str:
        """Return the fixed text and the key before the value."""
        return fill_pieces(self.pieces[: self.pieces.index(Hole.VALUE)], {Hole.KEY: key})

    def closing(self, key: str) -> str:
        """Return the fixed text after the value; it may repeat the key."""
        return fill_pieces(self.pieces[self.pieces.index(Hole.VALUE) + 1 :], {Hole.KEY: key})


@dataclass(frozen=True)
class Members:
    """The format of arguments that are written one by one, or of the items of an array, by JSON
    type. Strings that contain any of the `quoted_characters` have the type ``"quoted"``, as in
    CDATA."""

    of_type: Mapping[str, Member] = field(hash=False)
    between: str = ""  # the fixed text between two members
    sort: bool = False  # by their keys in lower case
    quoted_characters: str = ""

    def member(self, value: Any) -> Member | None:
        """Return how a value is written; None if the format cannot write it."""
        kind = json_type(value)
        if kind == "string" and any(each in value for each in self.quoted_characters):
            kind = "quoted"
        return self.of_type.get(kind)

    def of_types(self, types: Collection[str]) -> dict[str, Member]:
        """Return the members for some JSON types, with those for quoted strings."""
        return {
            kind: member
            for kind, member in self.of_type.items()
            if kind in types or (kind == "quoted" and "string" in types)
        }


@dataclass(frozen=True)
class CallFormat:
    """How a model writes tool calls. A turn without thoughts consists of the generation prompt
    without `cut`, then `lead`, and then the calls, or `text_start` and an answer in words."""

    cut: str = ""  # the end of the generation prompt, if it begins thoughts
    lead: str = ""  # fixed text before calls and answers alike, such as empty thoughts
    text_start: str = ""  # fixed text before an answer in words
    open: str = ""  # fixed text before the first call
    call: Pieces = ()  # the pieces of one call
    between: str = ""  # fixed text between two calls
    close: str = ""  # fixed text after the last call
    arguments: Json | Members = Json()
    items: Members | None = None  # of arrays whose value is "members"
    parallel: bool = True  # a turn may have several calls
    first_index: int = 0  # the number of the first call, if `Hole.INDEX` is in `call`
    index_continues: bool = False  # a later turn continues the numbers
    lists_tools: bool = True  # the template lists the tools for the model
    generic: bool = False  # for templates that do not write calls

    @property
    def call_start(self) -> str:
        """The fixed text up to the first hole of the first call."""
        return self.open + (self.call[0] if isinstance(self.call[0], str) else "")


@dataclass(frozen=True)
class Call:
    """A tool call: the tool's name, its arguments as JSON values, and its id, if it has one."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


def render_call(format: CallFormat, calls: Sequence[Call], earlier_calls: int = 0) -> str:
    """Write the tool calls of a turn as the model's chat template writes them, after
    `earlier_calls` in other turns. Raise InvalidArgumentError if the format cannot write them."""
    if not calls or (len(calls) > 1 and not format.parallel):
        expected = "at least one call" if format.parallel else "one call"
        raise InvalidArgumentError(
            f"the model's format of tool calls needs {expected} in a turn, got {len(calls)}"
        )
    first = format.first_index + (earlier_calls if format.index_continues else 0)
    written = []
    for index, call in enumerate(calls, first):
        if Hole.ID in format.call and not call.id:
            raise InvalidArgumentError(
                f"the model's format needs an id for each call, got none for {call.name!r}"
            )
        holes = {
            Hole.NAME: call.name,
            Hole.ID: call.id or "",
            Hole.INDEX: str(index),
            Hole.ARGUMENTS: write_arguments(format, call.arguments),
        }
        written.append(fill_pieces(format.call, holes))
    return format.open + format.between.join(written) + format.close


def write_arguments(format: CallFormat, arguments: Mapping[str, Any]) -> str:
    if isinstance(format.arguments, Json):
        return format.arguments.write(arguments)
    return write_members(format.arguments, arguments, format.arguments, format.items)


def write_members(
    members: Members,
    value: Mapping[str, Any] | Sequence[Any],
    of_objects: Members | None,
    of_arrays: Members | None,
) -> str:
    """Return the members of an object, or the items of an array, as the format writes them."""
    pairs: list[tuple[Any, Any]] = list(
        value.items() if isinstance(value, Mapping) else enumerate(value)
    )
    if members.sort:
        pairs.sort(key=lambda pair: pair[0].lower())
    written = []
    for key, item in pairs:
        member = members.member(item)
        nested = of_objects if isinstance(item, Mapping) else of_arrays
        if member is None or (member.value == "members" and nested is None):
            raise InvalidArgumentError(
                f"the model's format cannot write a value of the type {json_type(item)}: {key!r}"
            )
        if nested and member.value == "members":
            text = write_members(nested, item, of_objects, of_arrays)
        else:
            text = WRITERS[member.value](item)
        written.append(fill_pieces(member.pieces, {Hole.KEY: str(key), Hole.VALUE: text}))
    return members.between.join(written)


WRITERS: dict[str, Callable[[Any], str]] = {"raw": str, "json": Json().write, "python": str}
"""The functions that write values, for every way of writing except ``"members"``."""


def fill_pieces(pieces: Pieces, holes: Mapping[Hole, str]) -> str:
    return "".join([piece if isinstance(piece, str) else holes[piece] for piece in pieces])
