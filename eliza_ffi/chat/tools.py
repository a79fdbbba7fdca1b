"""Read tool definitions in the form of OpenAI's APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._lazy import lazy_property
from ..checks import check_flag, check_kind, check_text, wrong
from ..errors import InvalidArgumentError
from ..structured.limits import checked_schema

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

OTHER_KEYS = ("input_schema", "inputSchema")
"""What Anthropic's API and the Model Context Protocol call a tool's parameters."""


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that the model may call."""

    name: str  # 1 to 128 letters, digits, '_', '-' and '.'
    description: str  # for the model
    parameters: Mapping[str, Any]  # a JSON Schema of type "object"
    strict: bool | None = None  # OpenAI's; None = not set

    @lazy_property
    def schema(self) -> str:
        """The schema of the parameters as JSON; see :func:`.limits.checked_schema`."""
        # Arguments are always an object, even if the schema of a client allows null in its place.
        always = {key: each for key, each in self.parameters.items() if key != "nullable"}
        return checked_schema(always)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as chat templates expect it, in the form of chat completions."""
        function: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        if self.strict is not None:
            function["strict"] = self.strict
        return {"type": "function", "function": function}


def read_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Return tool definitions in the form of chat completions or of responses as :class:`Tool`
    objects. Raise InvalidArgumentError if there are none, or one is not valid or named like
    another."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        hint = "put a single definition into a list" if isinstance(tools, Mapping) else ""
        raise wrong("tools", "a list of tool definitions", tools, hint)
    if not tools:
        raise InvalidArgumentError("expected at least one tool, got none")
    read: dict[str, Tool] = {}
    for i, definition in enumerate(tools):
        tool = _read_tool(definition, i)
        if tool.name in read:
            raise InvalidArgumentError(
                f"tools {[*read].index(tool.name)} and {i} are both named {tool.name!r}: "
                "rename one of them"
            )
        read[tool.name] = tool
    return tuple(read.values())


def _read_tool(definition: Any, i: int) -> Tool:
    check_kind(f"tool {i}", definition, Mapping, "a mapping with a name and parameters")
    if (kind := definition.get("type", "function")) != "function":
        raise InvalidArgumentError(
            f"tool {i}: expected the type 'function', got {kind!r}; remove tools of other types"
        )
    function = definition.get("function", definition)
    check_kind(f"the 'function' of tool {i}", function, Mapping, "a mapping")
    name = function.get("name")
    if name is None or name == "":
        raise InvalidArgumentError(f"tool {i} has no name: give its function a 'name'")
    check_text(f"the name of tool {i}", name)
    if not NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"the name of tool {i} is {name[:140]!r}; "
            "expected 1 to 128 letters, digits, '_', '-' and '.'"
        )
    description = check_text(f"the description of tool {name!r}", function.get("description") or "")
    for key in OTHER_KEYS:
        if key in function and "parameters" not in function:
            raise InvalidArgumentError(
                f"tool {name!r} has its schema under {key!r}: rename this key to 'parameters'"
            )
    strict = function.get("strict")
    if strict is not None:
        strict = check_flag(f"'strict' of tool {name!r}", strict)
    return Tool(name, description, _read_parameters(function.get("parameters"), name), strict)


def _read_parameters(parameters: Any, name: str) -> dict[str, Any]:
    """Return the schema of a tool's parameters; a tool without a schema has no parameters."""
    called = f"the parameters of tool {name!r}"
    parameters = {} if parameters is None else parameters
    hint = ""
    if hasattr(parameters, "model_json_schema"):
        hint = "for a pydantic class pass its model_json_schema()"
    check_kind(called, parameters, Mapping, "a JSON Schema as a mapping", hint)
    untyped = "type" not in parameters and (not parameters or "properties" in parameters)
    if not untyped and parameters.get("type") != "object":
        found = repr(parameters["type"]) if "type" in parameters else "no type"
        raise InvalidArgumentError(
            f"{called} must have the type 'object', got {found}: "
            "make the schema a property of an object"
        )
    schema = {"type": "object", "properties": {}, **parameters}
    check_kind(f"'properties' of tool {name!r}", schema["properties"], Mapping, "a mapping")
    try:
        json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{called} are not JSON: {error}") from error
    return schema
