"""The spans of a skeleton, and their JSON form in elizaOS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..checks import (
    check_flag,
    check_kind,
    check_known,
    check_one_of,
    check_several,
    check_unicode,
    within,
    wrong,
)
from ..errors import InvalidArgumentError
from .json_text import json_text, string_body

Scalar = str | int | float | bool | None
"""A JSON value that is not an array or object."""

KINDS = ("literal", "enum", "number", "integer", "boolean", "free-string", "free-json")
"""The kinds of span."""


@dataclass(frozen=True)
class SkeletonSpan:
    """A part of an answer: fixed text, or a value that the model writes.

    Attributes
    ----------
    kind : str
        ``"literal"`` (the text `value`), ``"enum"`` (one of `enum_values`), ``"number"``,
        ``"boolean"``, ``"free-string"`` (a JSON string), ``"free-json"`` (any JSON value), and
        ``"integer"``, which elizaOS does not have.
    key : str or None
        The name of the field. The result contains the value under this name.
    value : str or None
        The text of a literal.
    enum_values : tuple of str, int, float, bool or None
        The allowed values of an enum, without duplicates. They are written as JSON.
    rule : str or None
        The name of a rule in the skeleton's grammar. The value must match this rule instead of the
        kind.

    Raises
    ------
    InvalidArgumentError
        If a required field is missing, or a field is not allowed for this kind.
    """

    kind: str
    key: str | None = None
    value: str | None = None
    enum_values: tuple[Scalar, ...] | None = None
    rule: str | None = None

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, KINDS)
        for name in ("key", "value", "rule"):
            text = getattr(self, name)
            if text is not None:
                check_text(text, name)
        if self.enum_values is not None:
            object.__setattr__(self, "enum_values", _checked_values(self.enum_values))
        for name, kind in (("value", "literal"), ("enum_values", "enum")):
            is_set = getattr(self, name) is not None
            if is_set and self.kind != kind:
                raise InvalidArgumentError(
                    f"{name} is only allowed in a span of kind {kind}, got kind {self.kind}"
                )
            if not is_set and self.kind == kind and (self.rule is None or kind == "literal"):
                raise InvalidArgumentError(f"a span of kind {kind} needs {name}")
        if self.kind == "literal" and self.rule is not None:
            raise InvalidArgumentError("rule is not allowed in a span of kind literal")

    @classmethod
    def from_dict(cls, data: Any) -> SkeletonSpan:
        """Create a span from elizaOS's JSON form. ``enum_values`` is an alias of ``enumValues``."""
        values = from_json_form("a span", data, cls)
        if (listed := values.get("enum_values")) is not None:
            values["enum_values"] = tuple(check_kind("enumValues", listed, (list, tuple), "a list"))
        if "kind" not in values:
            raise InvalidArgumentError("a span needs a kind")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form."""
        return to_json_form(self)

    def texts(self, in_string: bool) -> tuple[str, ...] | None:
        """Return all spellings of the value, or None if the span is not a boolean or an enum."""
        in_string = check_flag("in_string", in_string)
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


def from_json_form(what: str, data: Any, kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from a JSON object, without those that are None. Their names
    may be in camelCase, as in elizaOS, or in snake_case."""
    check_kind(what, data, Mapping, "an object")
    names = {name: each.name for each in fields(kind) for name in (_camel(each.name), each.name)}
    check_known(what, data, names)
    return {names[name]: value for name, value in data.items() if value is not None}


def to_json_form(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass in elizaOS's JSON form, without those that are None."""
    values = {_camel(each.name): getattr(instance, each.name) for each in fields(instance)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _checked_values(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    values = tuple(check_several("enum_values", values, "a list of values"))
    if not values:
        raise InvalidArgumentError("enum_values must not be empty: there is nothing to choose from")
    seen: dict[str, int] = {}
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, str | int | float | bool):
            raise wrong(f"enum_values[{i}]", "a string, number, boolean or null", value)
        with within(f"enum_values[{i}]"):
            text = json_text(value)
        if text in seen:
            raise InvalidArgumentError(
                f"enum_values[{i}] is {text}, a duplicate of enum_values[{seen[text]}]"
            )
        seen[text] = i
    return values


def check_text(text: object, name: str) -> None:
    """Raise InvalidArgumentError if this is not a string, has a lone surrogate, or has a NUL where
    C reads it."""
    if not isinstance(text, str):
        raise wrong(name, "a string", text)
    check_unicode(text, name)
    if "\0" in text and name in ("value", "rule", "grammar"):
        raise InvalidArgumentError(f"{name} contains a NUL character: {text!r:.80}")
