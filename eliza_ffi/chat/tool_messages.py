"""Prepare conversations with tools for any chat template, even one that does not support tools."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import found
from ..errors import InvalidArgumentError
from .call_format import Call, CallFormat, Hole, render_call
from .call_reader import STRICT_JSON
from .forms import text_of
from .tools import Tool

GENERIC = CallFormat(
    call=('{"name": "', Hole.NAME, '", "arguments": ', Hole.ARGUMENTS, "}"),
    between="\n",
    lists_tools=False,
    generic=True,
)
"""The format for templates that do not write calls: one JSON object on each line."""

EXAMPLE = Call("tool_name", {"argument_name": "value"}, "aB3dE6gH9")


def tool_messages(
    format: CallFormat, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return the ``messages`` and ``tools`` to pass to the template for a conversation with tools.
    Calls and lists of tools that the template does not support are written into contents. Raise
    InvalidArgumentError for a call without a name or arguments."""
    told = messages_with_calls(format, messages)
    if not format.lists_tools:
        system = _instructions(format, tuple(tools))
        if told and told[0].get("role") == "system":
            system = f"{text_of(told.pop(0).get('content'))}\n\n{system}"
        told = [{"role": "system", "content": system}, *told]
    return told, None if format.generic else [tool.definition for tool in tools]


def messages_with_calls(
    format: CallFormat, messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages in which the template can write all tool calls and their results: in words if
    it does not support them."""
    if not format.generic:
        return [dict(message) for message in messages]
    told: list[dict[str, Any]] = []
    names: dict[Any, str] = {}
    for message in map(dict, messages):
        if listed := message.pop("tool_calls", None):
            calls = [read_call(each) for each in listed]
            names |= {call.id: call.name for call in calls}
            written = render_call(format, calls)
            said = text_of(message.get("content"))
            message["content"] = f"{said}\n{written}" if said else written
        elif message.get("role") == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id"), "the tool")
            content = f"Result of {name}:\n{text_of(message.get('content'))}"
            if told and told[-1].get("role") == "user":  # in many templates, roles must alternate
                content = f"{text_of(told.pop()['content'])}\n\n{content}"
            message = {"role": "user", "content": content}
        told.append(message)
    return told


@functools.lru_cache(maxsize=64)
def _instructions(format: CallFormat, tools: tuple[Tool, ...]) -> str:
    """Return instructions that list the tools and show how to call one."""
    lines = ["You can call tools. Each of these lines describes one:"]
    lines += [json.dumps(tool.definition["function"], ensure_ascii=False) for tool in tools]
    lines += ["To call a tool, write a call like this and nothing else:"]
    lines += [render_call(format, [EXAMPLE])]
    if format.parallel:
        lines += ["To call several tools, write several calls like this:"]
        lines += [render_call(format, [EXAMPLE, EXAMPLE])]
    return "\n".join([*lines, "To answer without a tool, write the answer in words."])


def read_call(call: Any) -> Call:
    """Read a tool call of a message in OpenAI's form; its arguments may be JSON or a mapping."""
    function = call.get("function") if isinstance(call, Mapping) else None
    name, arguments = (
        (function.get("name"), function.get("arguments"))
        if isinstance(function, Mapping)
        else (None, None)
    )
    if isinstance(arguments, str):
        try:
            arguments = STRICT_JSON.decode(arguments or "{}")
        except (RecursionError, ValueError):
            arguments = None
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise InvalidArgumentError(
            'expected a tool call {"function": {"name": ..., "arguments": ...}} with arguments '
            f"as a mapping or as JSON, got {_written(call)}"
        )
    return Call(name, arguments, call.get("id"))


def _written(call: Any) -> str:
    try:
        return json.dumps(call, default=str)[:200]
    except (RecursionError, TypeError, ValueError):
        return found(call)
