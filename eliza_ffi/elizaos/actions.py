"""Actions that a planner may choose, and their parameters, in elizaOS's format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._lazy import lazy_property
from ..checks import (
    check_each,
    check_flag,
    check_misspelt,
    check_one_of,
    check_several,
    check_text,
    check_unicode,
    found,
    within,
    wrong,
)
from ..errors import InvalidArgumentError
from ..structured.json_text import json_text
from ..structured.placed_span import PlacedSpan
from ..structured.spans import Scalar, SkeletonSpan

ACTION_FIELDS = ("name", "parameters", "description")
PARAMETER_FIELDS = ("name", "type", "enum", "required", "description")

KINDS = {"string": "free-string", "number": "number", "integer": "integer", "boolean": "boolean"}


PARAMETER_LIST = (
    "the parameters as a list of objects with name, type, enum, required and description"
)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an action.

    Attributes
    ----------
    name : str
    type : str
        ``"string"``, ``"number"``, ``"integer"`` or ``"boolean"``.
    enum : tuple of str, int, float or bool, or None
        The allowed values; None = every value of the type.
    required : bool
        Whether an answer always has the parameter.
    description : str

    Raises
    ------
    InvalidArgumentError
        If the type is unknown, or `enum` is empty, has repeated values or values of another type.
    """

    name: str
    type: str = "string"
    enum: tuple[Scalar, ...] | None = None
    required: bool = True
    description: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name, "a parameter")
        this = f"parameter {self.name!r}"
        check_one_of(f"{this}: type", self.type, KINDS)
        object.__setattr__(self, "required", check_flag(f"{this}: required", self.required))
        check_text(f"{this}: description", self.description)
        if self.enum is not None:
            listed = check_several(f"{this}: enum", self.enum, "a list of values")
            object.__setattr__(self, "enum", tuple(listed))
            for value in self.enum:
                if not self._is_of_type(value):
                    expected = f"expected enum values of type {self.type}"
                    raise InvalidArgumentError(f"{this}: {expected}, got {found(value)}")
        with within(this):
            _ = self.span

    @classmethod
    def from_dict(cls, data: Any) -> Parameter:
        """Read a parameter in elizaOS's JSON format: name, type, enum, required, description."""
        if not isinstance(data, Mapping) or "name" not in data:
            raise wrong("a parameter", "an object with a name", data)
        this = f"parameter {data['name']!r:.80}"
        check_misspelt(this, data, PARAMETER_FIELDS)
        values = data.get("enum")
        if values is not None and not isinstance(values, list | tuple):
            raise wrong(f"{this}: enum", "a list", values)
        return cls(
            name=data["name"],
            type=data.get("type") or "string",
            enum=None if values is None else tuple(values),
            required=bool(data.get("required", True)),
            description=str(data.get("description") or ""),
        )

    @lazy_property
    def span(self) -> SkeletonSpan:
        """The span of the value."""
        if self.enum is not None:
            return SkeletonSpan("enum", self.name, enum_values=self.enum)
        return SkeletonSpan(KINDS[self.type], self.name)

    @property
    def in_string(self) -> bool:
        """Whether the quotes around the value are fixed text.

        Fixed quotes are tokenized together with their neighbours, as a model usually writes them.
        """
        return self.type == "string" and "" not in (self.enum or ())

    @lazy_property
    def opening(self) -> str:
        """The fixed text before the value."""
        return json_text(self.name) + (':"' if self.in_string else ":")

    @property
    def closing(self) -> str:
        """The fixed text after the value."""
        return '"' if self.in_string else ""

    def placed(self, index: int, before: str = "", *follow: str) -> PlacedSpan:
        """Return the span of the value.

        `follow` lists the strings that may come after the value. A single string is fixed text;
        between several strings, the model chooses.
        """
        is_fixed = len(follow) == 1
        return PlacedSpan(
            index,
            self.span,
            self.in_string,
            before=before,
            after=follow[0] if is_fixed else "",
            follow=() if is_fixed else follow,
        )

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is allowed for this parameter."""
        if self.enum is not None and not any(
            value == each and isinstance(value, bool) == isinstance(each, bool)
            for each in self.enum
        ):
            return False
        return self._is_of_type(value)

    def _is_of_type(self, value: Any) -> bool:
        if self.type == "string":
            return isinstance(value, str)
        if self.type == "boolean":
            return isinstance(value, bool)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return self.type == "number" or isinstance(value, int) or math.isinf(value)


@dataclass(frozen=True)
class Action:
    """An action that a planner may choose.

    Attributes
    ----------
    name : str
    parameters : tuple of Parameter
        The parameters, with distinct names.
    description : str
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name, "an action")
        parameters = check_each(
            f"action {self.name!r}: parameters", self.parameters, Parameter, "a Parameter"
        )
        object.__setattr__(self, "parameters", parameters)
        check_text(f"action {self.name!r}: description", self.description)
        names = [parameter.name for parameter in self.parameters]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgumentError(
                    f"action {self.name!r}: expected distinct parameter names, got {name!r} twice"
                )

    @classmethod
    def from_dict(cls, data: Any) -> Action:
        """Read an action in elizaOS's JSON format: name, description, parameters."""
        if isinstance(data, Mapping) and isinstance(data.get("function"), Mapping):
            raise InvalidArgumentError(
                "an action must be an object with name, description and parameters, got an OpenAI "
                f"tool definition; pass the contents of its 'function', with {PARAMETER_LIST}"
            )
        if not isinstance(data, Mapping) or "name" not in data:
            raise wrong("an action", "an object with a name", data)
        this = f"action {data['name']!r:.80}"
        check_misspelt(this, data, ACTION_FIELDS)
        parameters = data.get("parameters")
        if parameters is None or parameters == {}:
            parameters = ()
        schemas = [name for name in ("input_schema", "inputSchema") if name in data]
        if schemas or isinstance(parameters, Mapping):
            where = schemas[0] if schemas else "parameters"
            raise InvalidArgumentError(
                f"{this}: parameters must be a list, got a mapping in {where}, such as a JSON "
                f"Schema; pass {PARAMETER_LIST}"
            )
        if not isinstance(parameters, Sequence) or isinstance(parameters, str):
            raise wrong(f"{this}: parameters", "a list", parameters)
        with within(this):
            listed = tuple(Parameter.from_dict(each) for each in parameters)
        return cls(data["name"], listed, str(data.get("description") or ""))

    def accepts(self, parameters: Any) -> bool:
        """Return whether a value is an object with valid parameters of this action and no others.

        All required parameters must be in it. The order of the keys does not matter.
        """
        if not isinstance(parameters, Mapping):
            return False
        known = {parameter.name: parameter for parameter in self.parameters}
        if any(each.required and each.name not in parameters for each in self.parameters):
            return False
        return all(name in known and known[name].accepts(parameters[name]) for name in parameters)


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise wrong(f"the name of {what}", "a non-empty string", name)
    check_unicode(name, f"the name of {what}")
