"""A conversation as a prompt, in the format that a model was trained on.

A GGUF file carries the format as a template in Jinja2's language. That is a program, of whoever
made the file, so it runs in a sandbox; :mod:`eliza_ffi.chat.sandbox` says what is bounded.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, TypeAlias

from ..checks import check_flag, check_kind, check_text
from ..errors import (
    ChatTemplateError,
    InvalidArgumentError,
    NoChatTemplateError,
    NotSupportedError,
)
from .forms import MessageForms

__all__ = ["ChatTemplate", "Messages", "template_of_model"]

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A conversation, oldest first: see :meth:`ChatTemplate.render`."""

MAX_SOURCE = 200_000


class ChatTemplate:
    """A chat template, ready to render.

    Parameters
    ----------
    source
        The template in Jinja2's language; at most 200,000 characters.
    bos_token, eos_token
        The texts of the tokens that begin and end a text, which templates write by these names.
    add_bos
        Whether the model wants every text to begin with `bos_token`; rendering does not add it,
        tokenizing does where the template has not.

    Raises
    ------
    ChatTemplateError
        If the template is not a valid one.
    NotSupportedError
        If Jinja2 is not installed.
    """

    def __init__(
        self, source: str, bos_token: str = "", eos_token: str = "", *, add_bos: bool = False
    ) -> None:
        for name, text in (("source", source), ("bos_token", bos_token), ("eos_token", eos_token)):
            check_text(name, text)
        check_flag("add_bos", add_bos)
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self.add_bos = add_bos
        self._sandbox = _import_sandbox()
        if len(source) > MAX_SOURCE:
            raise ChatTemplateError(f"the chat template is longer than {MAX_SOURCE:,} characters")
        try:
            self._template = _environment().from_string(source)
        except Exception as error:  # of the parser, of Python's compiler, or of the sandbox
            raise ChatTemplateError(f"the chat template is not valid: {_said(error)}") from error

    def render(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **extra: Any,
    ) -> str:
        """Return a conversation as the model reads it.

        Parameters
        ----------
        messages
            The conversation, oldest first, of at least one message. Each is a mapping with a
            ``role`` and a ``content``: a text, None beside ``tool_calls``, or a sequence of parts
            ``{"type": "text", "text": ...}``. A template that knows no parts gets their texts,
            joined by line breaks; one that knows only parts gets a text as one part.
        add_generation_prompt
            End where the assistant's turn begins.
        tools
            Descriptions of tools, for templates that know them.
        **extra
            What else the template asks for, such as ``enable_thinking`` or ``documents``.

        Raises
        ------
        InvalidArgumentError
            If the messages are not as above.
        ChatTemplateError
            If the template fails, does too much, or refuses the messages, as many do whose roles
            do not alternate; the text says what the template said.

        Notes
        -----
        The text has control tokens and contents alike in plain characters, so that a content can
        spell a control token. :meth:`~eliza_ffi.model.Model.chat_tokens` tells them apart.
        """
        check_messages(messages)
        for name in ("bos_token", "eos_token", "messages"):
            if name in extra:
                raise InvalidArgumentError(f"{name} is not the template's to be given")
        try:
            with self._sandbox.bounded(len(messages)):
                tools = self._forms.no_tools if tools is None else tools
                given = {"add_generation_prompt": add_generation_prompt, "tools": tools, **extra}
                return self._run(self._forms.fit(messages), **given)
        except self._sandbox.Refused as error:
            raise ChatTemplateError(f"the chat template refuses the messages: {error}") from error
        except self._sandbox.LimitReached as error:
            raise ChatTemplateError(f"the chat template was stopped: {error}") from error
        except Exception as error:  # it is a program: anything can go wrong in it
            raise ChatTemplateError(f"the chat template failed: {_said(error)}") from error

    def fit(self, messages: Messages) -> list[dict[str, Any]]:
        """Return messages in the forms that the template can write.

        :meth:`render` does this first.

        Raises
        ------
        InvalidArgumentError
            If the messages are not as :meth:`render` expects them.
        ChatTemplateError
            If the template does too much.
        """
        check_messages(messages)
        try:
            with self._sandbox.bounded(len(messages)):
                return self._forms.fit(messages)
        except self._sandbox.LimitReached as error:
            raise ChatTemplateError(f"the chat template was stopped: {error}") from error

    @functools.cached_property
    def looked_for(self) -> frozenset[str]:
        """The texts that the template's expressions are written with: it may look for them."""
        return frozenset(self._sandbox.string_constants(_environment(), self.source))

    @functools.cached_property
    def _forms(self) -> MessageForms:
        return MessageForms(self._try)

    def _try(self, messages: Sequence[Mapping[str, Any]], *, tools: Any) -> str:
        """Render messages as they are; return an empty string if the template fails."""
        try:
            return self._run(messages, add_generation_prompt=True, tools=tools)
        except self._sandbox.LimitReached:
            raise
        except Exception:  # the template may know only another form of messages
            return ""

    def _run(self, messages: Sequence[Mapping[str, Any]], **given: Any) -> str:
        tokens = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        variables = {**self._older_variables(given.get("tools")), **given, **tokens}
        return str(self._template.render(messages=messages, **variables))

    def _older_variables(self, tools: Any) -> dict[str, str]:
        """Return the variables that older templates use for ``strftime_now`` and ``tools``."""
        variables = {}
        if "datetime" in self._names_needed:
            variables["datetime"] = datetime.now().strftime("%b %d %Y")
        if "functions" in self._names_needed:
            functions = [
                tool.get("function", tool) if isinstance(tool, Mapping) else tool
                for tool in tools or ()
            ]
            variables["functions"] = self._sandbox.to_json(functions, indent=4)
        return variables

    @functools.cached_property
    def _names_needed(self) -> frozenset[str]:
        return frozenset(self._sandbox.names_needed(_environment(), self.source))


def template_of_model(facts: Mapping[str, Any]) -> ChatTemplate:
    """Return a model's template, from what the library says about the model.

    Raises
    ------
    NoChatTemplateError
        If there is none.
    ChatTemplateError
        If it is not valid.
    NotSupportedError
        If the library does not tell it, or Jinja2 is not installed.
    """
    source = check_kind("facts", facts, Mapping, "a mapping").get("chat_template")
    if source:
        return ChatTemplate(
            source,
            facts.get("bos_token") or "",
            facts.get("eos_token") or "",
            add_bos=bool(facts.get("add_bos")),
        )
    if facts.get("has_chat_template"):
        raise NotSupportedError("the library does not tell the model's chat template: it is older")
    raise NoChatTemplateError(
        f"the model {facts.get('path', '')} has no chat template: "
        "write the prompt as the model expects it and pass it as prompt="
    )


def check_messages(messages: Messages) -> Messages:
    """Return the messages if they are what :meth:`ChatTemplate.render` takes; raise otherwise."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidArgumentError(
            f"messages must be a sequence of mappings, not {type(messages).__name__}"
        )
    if not messages:
        raise InvalidArgumentError("there are no messages")
    for i, message in enumerate(messages):
        _check_message(message, f"message {i}")
    return messages


def _check_message(message: Any, name: str) -> None:
    if not isinstance(message, Mapping):
        raise InvalidArgumentError(f"{name} is not a mapping but {type(message).__name__}")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InvalidArgumentError(f"{name} has no role: it must be a text, not {role!r}")
    if content is None and message.get("tool_calls"):
        return
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        for part in content:
            _check_part(part, name)
    elif not isinstance(content, str):
        kind = type(content).__name__
        raise InvalidArgumentError(f"the content of {name} must be a text or parts, not {kind}")


def _check_part(part: Any, name: str) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        raise InvalidArgumentError(
            f'the content of {name} has a part that is not {{"type": "text", "text": "..."}}'
        )


def _import_sandbox() -> ModuleType:
    try:
        from . import sandbox
    except ImportError as error:
        raise NotSupportedError(
            "messages need Jinja2 3.1.6 or newer: pip install 'jinja2>=3.1.6'"
        ) from error
    return sandbox


@functools.cache
def _environment() -> Any:
    return _import_sandbox().BoundedEnvironment()


def _said(error: Exception) -> str:
    """Return what an exception of the template says, on one line of bearable length."""
    text = " ".join(f"{type(error).__name__}: {error}"[:1000].split())
    return text if len(text) <= 300 else text[:297] + "..."
