"""The handwritten actions: names, descriptions, parameters and requests from ``texts/actions``.

The lines of an action are marked ``@`` (its names), ``=`` (descriptions), ``%`` (parameters) and
``>`` (requests). A parameter is ``name:slot`` (a string), ``name#slot`` (a number) or
``name<a,b,c>`` (an enum); a ``?`` makes it optional. Requests may use parameters as slots.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .phrases import TEXTS, Phrase, parse
from .slots import fill_slot

_PARAMETER = re.compile(r"(?P<name>\w+)(?P<kind>[?]?[:#<]?)(?P<rest>[\w,]*)(?P<close>>?[?]?)")

HELD_OUT_ACTIONS = frozenset(
    (
        "GET_STOCK_PRICE",
        "FIND_RECIPE",
        "LOCK_DOOR",
        "PAY_INVOICE",
        "BOOK_HOTEL",
        "SKIP_TRACK",
        "CREATE_POLL",
        "TAKE_SCREENSHOT",
        "RESTART_SERVICE",
        "LOG_MEAL",
        "DELETE_FILE",
        "BRIDGE_TOKEN",
        "CONVERT_CURRENCY",
        "UNMUTE_ROOM",
        "ARM_SECURITY",
    )
)
"""Handwritten actions that training never uses, neither as the answer nor in a list."""

Schema = dict[str, Any]
"""An action in the format of the planner prompt: name, description, parameters."""


class Length(enum.Enum):
    """The length of a description. Held-out ones have clauses that training never uses."""

    SHORT = "short"
    LONG = "long"
    LONG_HELD_OUT = "long, held out"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an action and the source of its values."""

    name: str
    type: str
    slot: str
    enum: tuple[str, ...]
    required: bool

    def value(self, rng: random.Random) -> str | int | float:
        """Draw a value."""
        if self.enum:
            return rng.choice(self.enum)
        if self.type == "number":
            return _number(fill_slot("number" if not self.slot else self.slot, rng))
        return fill_slot(self.slot or self.name, rng)

    def schema(self) -> Schema:
        """Return the parameter in the format of elizaOS's fixtures."""
        schema: Schema = {"name": self.name, "type": self.type, "required": self.required}
        if self.enum:
            schema["enum"] = list(self.enum)
        return schema


@dataclass(frozen=True)
class Action:
    """An action with its names, descriptions, parameters and requests.

    `key` identifies the action, whichever of its names is used.
    """

    key: str
    names: tuple[str, ...]
    descriptions: tuple[Phrase, ...]
    parameters: tuple[Parameter, ...]
    requests: tuple[Phrase, ...]

    def request(self, rng: random.Random) -> tuple[str, Schema]:
        """Write a request for the action; also return the values of the parameters in it."""
        values: Schema = {}
        by_name = {parameter.name: parameter for parameter in self.parameters}

        def fill(slot: str, rng: random.Random) -> str:
            if slot not in by_name:
                return fill_slot(slot, rng)
            if slot not in values:
                values[slot] = by_name[slot].value(rng)
            return str(values[slot])

        text = rng.choice(self.requests).write(rng, fill)
        ordered = {name: values[name] for name in by_name if name in values}
        return text, ordered


def load_catalogue() -> tuple[Action, ...]:
    """Read all handwritten actions, in the order of their files."""
    return tuple(
        action for path in sorted((TEXTS / "actions").glob("*.txt")) for action in _read(path)
    )


def _read(path: Path) -> Iterator[Action]:
    blocks = re.split(r"^@", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for block in blocks[1:]:
        lines = block.splitlines()
        by_mark: dict[str, list[str]] = {"=": [], "%": [], ">": []}
        for line in lines[1:]:
            if line.strip():
                by_mark[line[0]].append(line[1:].strip())
        names = tuple(lines[0].split())
        yield Action(
            key=names[0],
            names=names,
            descriptions=tuple(map(parse, by_mark["="])),
            parameters=tuple(_parameter(text) for text in " ".join(by_mark["%"]).split()),
            requests=tuple(map(parse, by_mark[">"])),
        )


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a parameter such as name:slot, got {text!r}")
    kind = match["kind"].strip("?")
    return Parameter(
        name=match["name"],
        type="number" if kind == "#" else "string",
        slot=match["rest"] if kind != "<" else "",
        enum=tuple(match["rest"].split(",")) if kind == "<" else (),
        required="?" not in match["kind"] + match["close"],
    )


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value
