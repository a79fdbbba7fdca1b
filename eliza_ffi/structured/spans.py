"""Spans of a skeleton, in elizaOS's form: what may be written where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_flag, check_kind, check_known, check_one_of, check_several, wrong
from ..errors import InvalidArgumentError
from .automata import Dfa, any_text, intersection
from .json_text import check_unicode, json_text, string_body

__all__ = ["KINDS", "Scalar", "SkeletonSpan", "check_text"]

Scalar = str | int | float | bool | None
"""A JSON value without parts."""

KINDS = (
    "literal",
    "enum",
    "number",
    "integer",
    "boolean",
    "free-string",
    "free-json",
    "pattern",
)
"""What may stand in a span."""

_FIELDS = {
    "kind": "kind",
    "key": "key",
    "value": "value",
    "enumValues": "enum_values",
    "enum_values": "enum_values",
    "rule": "rule",
    "pattern": "pattern",
    "dfa": "dfa",
}

_DFA_KINDS = ("pattern", "number", "integer")


@dataclass(frozen=True)
class SkeletonSpan:
    """A span of an answer.

    Attributes
    ----------
    kind : str
        ``"literal"`` (`value` as it is), ``"enum"`` (one of `enum_values`), ``"number"``,
        ``"boolean"``, ``"free-string"`` (a JSON string), ``"free-json"`` (any JSON value); and
        beyond elizaOS ``"integer"`` and ``"pattern"``.
    key : str or None
        The name of the field, which comes back with its value.
    value : str or None
        The text of a literal.
    enum_values : tuple of str, int, float, bool or None
        What an enum may be: distinct. A string is spelled as a JSON string, the others as JSON
        spells them.
    rule : str or None
        A rule of the skeleton's grammar that takes the place of the kind's own.
    pattern : str or None
        A regular expression (see :mod:`.automata.regex_syntax`) for the whole text of a
        ``"pattern"``, which is taken as it is: in a JSON string no character is then written that
        would need an escape.
    dfa : Dfa or None
        In place of a pattern, the automaton of its texts; of a ``"number"`` or ``"integer"``, that
        of those which it may be.

    Raises
    ------
    InvalidArgumentError
        If a field is missing or has no meaning for the kind.
    """

    kind: str
    key: str | None = None
    value: str | None = None
    enum_values: tuple[Scalar, ...] | None = None
    rule: str | None = None
    pattern: str | None = None
    dfa: Dfa | None = None

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, KINDS)
        for name in ("key", "value", "rule", "pattern"):
            text = getattr(self, name)
            if text is not None:
                check_text(text, name)
        if self.enum_values is not None:
            object.__setattr__(self, "enum_values", _checked_values(self.enum_values))
        for name, kind in (("value", "literal"), ("enum_values", "enum"), ("pattern", "pattern")):
            given = getattr(self, name) is not None
            if given and self.kind != kind:
                raise InvalidArgumentError(f"{name} is of a span of kind {kind}, not {self.kind}")
            given = given or (name == "pattern" and self.dfa is not None)
            if not given and self.kind == kind and (self.rule is None or kind == "literal"):
                raise InvalidArgumentError(f"a span of kind {kind} needs {name}")
        if self.dfa is not None:
            self._check_dfa()
        if self.kind == "literal" and self.rule is not None:
            raise InvalidArgumentError("a literal is known: it has no rule")

    def _check_dfa(self) -> None:
        check_kind("dfa", self.dfa, Dfa, "an automaton")
        if self.kind not in _DFA_KINDS:
            raise InvalidArgumentError(
                f"dfa is of a span of kind {', '.join(_DFA_KINDS)}, not {self.kind}"
            )
        for name in ("pattern", "rule"):
            if getattr(self, name) is not None:
                raise InvalidArgumentError(f"dfa and {name} say twice what the value may be")

    @classmethod
    def from_dict(cls, data: Any) -> SkeletonSpan:
        """Return the span of elizaOS's JSON form; ``enum_values`` is taken for ``enumValues``."""
        check_kind("a span", data, Mapping, "an object")
        check_known("a span", data, _FIELDS)
        given: dict[str, Any] = {
            _FIELDS[name]: value for name, value in data.items() if value is not None
        }
        values = given.get("enum_values")
        if values is not None:
            check_kind("enumValues", values, (list, tuple), "a list")
            given["enum_values"] = tuple(values)
        if "dfa" in given:
            given["dfa"] = _read_dfa(given["dfa"])
        if "kind" not in given:
            raise InvalidArgumentError("a span needs a kind")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form."""
        values = None if self.enum_values is None else list(self.enum_values)
        fields = {
            "kind": self.kind,
            "key": self.key,
            "value": self.value,
            "enumValues": values,
            "rule": self.rule,
            "pattern": self.pattern,
            "dfa": None if self.dfa is None else self.dfa.to_dict(),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def texts(self, in_string: bool) -> tuple[str, ...] | None:
        """Return all texts that the value may be spelled as, or None if they are not listed."""
        check_flag("in_string", in_string)
        if self.rule is not None:
            return None
        if self.kind == "boolean":
            return ("true", "false")
        if self.kind != "enum" or self.enum_values is None:
            return None
        spell = string_body if in_string else json_text
        return tuple(
            spell(value) if isinstance(value, str) else json_text(value)
            for value in self.enum_values
        )


def _checked_values(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    values = tuple(check_several("enum_values", values, "a list of values"))
    if not values:
        raise InvalidArgumentError("enum_values is empty: there is nothing to choose from")
    seen: dict[str, int] = {}
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, str | int | float | bool):
            raise wrong(f"enum_values[{i}]", "a string, number, boolean or null", value)
        try:
            text = json_text(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"enum_values[{i}]: {error}") from None
        if text in seen:
            raise InvalidArgumentError(
                f"enum_values[{i}] is {text}, the same as enum_values[{seen[text]}]"
            )
        seen[text] = i
    return values


def _read_dfa(data: Any) -> Dfa:
    """Return the automaton of its JSON form, if all its texts are text."""
    if not isinstance(data, Mapping) or set(data) != {"classes", "transitions", "accepting"}:
        raise wrong("dfa", "an object of classes, transitions and accepting", data)
    try:
        classes, transitions = np.asarray(data["classes"]), np.asarray(data["transitions"])
        accepting = np.zeros(len(transitions), dtype=bool)
        accepting[data["accepting"]] = True
        dfa = Dfa(classes, transitions, accepting)
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"dfa: {error}") from None
    dfa.validate()
    # Byte by byte an automaton may accept what is not UTF-8.
    if intersection(dfa, any_text()) != dfa.minimized():
        raise InvalidArgumentError("dfa accepts bytes that are not UTF-8")
    return dfa


def check_text(text: object, name: str) -> None:
    """Check that a part of a skeleton is a text; of some, that it has no NUL, either.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    if not isinstance(text, str):
        raise wrong(name, "a string", text)
    check_unicode(text, name)
    if "\0" in text and name in ("value", "rule", "grammar"):
        raise InvalidArgumentError(f"{name} contains a NUL character: {text!r:.80}")
