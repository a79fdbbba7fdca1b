"""Rewrite messages into the forms that a chat template supports, which rendering short
conversations shows. Templates disagree about contents, arguments and ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .._lazy import lazy_property
from .tools import Tool

MARK, OTHER_MARK, LAST_MARK = "eliza 42", "eliza 43", "eliza 44"
PARAMETERS = {
    "type": "object",
    "properties": {"eliza_key": {"type": "string", "description": "A key."}},
    "required": ["eliza_key"],
}
SHORT_ID, LONG_ID = "eliza4242", "call_eliza-4242"
"""An id of nine letters and digits, which all templates accept, and an id of another server."""

TOOL = Tool("eliza_tool", "A tool.", PARAMETERS).definition


class MessageForms:
    """Rewrites messages into the forms that a template supports. `write` renders messages with
    ``tools=``; it returns an empty string if the template fails."""

    def __init__(self, write: Callable[..., str]) -> None:
        self._write = write

    def fit(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        fitted = [dict(message) for message in messages]
        for message in fitted:
            if message["role"] == "developer" and not self._roles_known["developer"]:
                message["role"] = "system"
        fitted = self._with_systems(fitted)
        if len(fitted) > 1 and fitted[0]["role"] == "system" and not self._roles_known["system"]:
            instructions, first, *others = fitted
            text = f"{text_of(instructions['content'])}\n{text_of(first.get('content'))}"
            fitted = [{**first, "content": text}, *others]
        has_calls = any(each.get("tool_calls") or each["role"] == "tool" for each in fitted)
        if has_calls and self._needs_short_ids:
            _shorten_ids(fitted)
        return [self._fit_message(message) for message in fitted]

    def _with_systems(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Merge the system messages into the first message if the template needs that."""
        systems = [i for i, message in enumerate(messages) if message["role"] == "system"]
        if systems in ([], [0]):
            return messages
        is_at_start = systems == list(range(len(systems)))
        if self._writes_systems["several" if is_at_start else "later"]:
            return messages
        text = "\n\n".join(text_of(messages[i].get("content")) for i in systems)
        others = [message for message in messages if message["role"] != "system"]
        return [{**messages[systems[0]], "content": text}, *others]

    @lazy_property
    def _writes_systems(self) -> dict[str, bool]:
        """Whether the template writes several system messages, and one after a user's message."""
        system, later = ({"role": "system", "content": each} for each in (OTHER_MARK, LAST_MARK))
        talks = {"several": [system, later, _user(MARK)], "later": [system, _user(MARK), later]}
        marks = (MARK, OTHER_MARK, LAST_MARK)
        return {
            name: all(mark in text for mark in marks)
            for name, talk in talks.items()
            for text in (self._written(*map(self._fit_message, map(dict, talk))),)
        }

    def _written(self, *talk: Mapping[str, Any]) -> str:
        return self._write([*talk], tools=self.no_tools)

    @lazy_property
    def no_tools(self) -> list[Any] | None:
        """The value of ``tools`` for conversations without tools: None, or [] if None fails."""
        talks = ([_user(MARK)], [_user(_parts(MARK))])
        forms: tuple[list[Any] | None, ...] = (None, [])
        for nothing in forms:
            if any(MARK in self._write(talk, tools=nothing) for talk in talks):
                return nothing
        return None

    def _fit_message(self, message: dict[str, Any]) -> dict[str, Any]:
        is_unthinking = message["role"] == "assistant" and not any(
            key.startswith(("think", "reasoning")) for key in message
        )
        if is_unthinking and self._needs_thinking:
            message["reasoning_content"] = ""
        if message.get("tool_calls"):
            empty, arguments_form = self._call_forms
            message["content"] = message.get("content") or empty
            calls = message["tool_calls"]
            message["tool_calls"] = [_fit_call(call, arguments_form) for call in calls]
        content, form = message.get("content"), self._content_form
        if form == "text" and isinstance(content, Sequence):
            message["content"] = text_of(content)
        elif form == "parts" and isinstance(content, str):
            message["content"] = _parts(content)
        return message

    @lazy_property
    def _content_form(self) -> str:
        """The contents that the template supports: ``"text"``, ``"parts"`` or ``"any"``."""
        as_text = MARK in self._written(_user(MARK))
        written = self._written(_user(_parts(MARK)))
        # A template that expects a string writes a list of parts in Python's notation.
        as_parts = MARK in written and "'text':" not in written
        if as_text == as_parts:
            return "any"
        return "text" if as_text else "parts"

    @lazy_property
    def _needs_thinking(self) -> bool:
        """Whether the template rejects turns of the assistant without ``reasoning_content``."""
        turn = {"role": "assistant", "content": MARK}
        thinking = {**turn, "reasoning_content": ""}
        without, with_it = (self._written(_user("x"), each) for each in (turn, thinking))
        return MARK in with_it and MARK not in without

    @lazy_property
    def _call_forms(self) -> tuple[str | None, str]:
        """The content of messages that only call tools, and the form of arguments: ``"mapping"``,
        ``"json"``, or ``"any"`` if the template writes both alike."""
        mapping = {"eliza_key": MARK}
        text = json.dumps(mapping)
        for empty in ("", None):
            of_mapping = self._write_call(empty, mapping)
            of_text = self._write_call(empty, text)
            as_mapping = MARK in of_mapping and "{'eliza_key'" not in of_mapping
            as_text = text in of_text
            if as_mapping:
                return empty, "any" if as_text and text in of_mapping else "mapping"
            if as_text:
                return empty, "json"
        return "", "any"

    def _write_call(self, content: str | None, arguments: Any) -> str:
        return self._write([_user("x"), self._turn(content, arguments)], tools=[TOOL])

    def _turn(self, content: str | None, arguments: Any, id: str = SHORT_ID) -> dict[str, Any]:
        function = {"name": "eliza_tool", "arguments": arguments}
        call = {"id": id, "type": "function", "function": function}
        turn: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": [call]}
        if self._needs_thinking:
            turn["reasoning_content"] = ""
        return turn

    @lazy_property
    def _needs_short_ids(self) -> bool:
        """Whether the template rejects ids that are not nine letters and digits."""
        short, long = (
            MARK in self._write([_user("x"), self._fit_message(turn), result], tools=[TOOL])
            for id in (SHORT_ID, LONG_ID)
            for turn in (self._turn(None, {"eliza_key": "x"}, id),)
            for result in ({"role": "tool", "tool_call_id": id, "content": MARK},)
        )
        return short and not long

    @lazy_property
    def _roles_known(self) -> dict[str, bool]:
        known = {}
        for role in ("developer", "system"):
            talk = [{"role": role, "content": OTHER_MARK}, _user(MARK)]
            text = self._written(*map(self._fit_message, talk))
            known[role] = MARK in text and OTHER_MARK in text
        return known


def text_of(content: Any) -> str:
    """Return a content as one string; parts are joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or ())


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _fit_call(call: Any, form: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if form == "any" or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if form == "json" and isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif form == "mapping" and isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(arguments)
            arguments = value if isinstance(value, dict) else arguments
    return {**call, "function": {**function, "arguments": arguments}}


def _shorten_ids(messages: Sequence[dict[str, Any]]) -> None:
    """Replace the ids of calls and results by ids of nine letters and digits, the same in every
    request. A result without an id gets the id of the call at the same position."""
    ids: list[str] = []
    n_results = 0
    for message in messages:
        if message["role"] == "tool":
            id = message.get("tool_call_id")
            if id is None and n_results < len(ids):
                message["tool_call_id"] = ids[n_results]
            else:
                message["tool_call_id"] = _short_id(id)
            n_results += 1
        calls = []
        for call in message.get("tool_calls") or ():
            id = call.get("id") if isinstance(call, Mapping) else None
            ids.append(_short_id(len(ids) if id is None else id))
            calls.append({**call, "id": ids[-1]} if isinstance(call, Mapping) else call)
        if calls:
            message["tool_calls"] = calls


def _short_id(id: Any) -> str:
    text = str(id)
    if len(text) == len(SHORT_ID) and text.isascii() and text.isalnum():
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[: len(SHORT_ID)]
