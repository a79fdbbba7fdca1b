"""Render a conversation as a prompt, with the chat template of a GGUF file, in a sandbox."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from .._lazy import lazy_property
from ..checks import check_flag, check_kind, check_text, wrong
from ..errors import ChatTemplateError, InvalidArgumentError, NoChatTemplateError
from .forms import MessageForms
from .thinking import ThinkingFormat, known_thinking_format

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""A conversation, oldest message first; see :meth:`ChatTemplate.render`."""

MAX_SOURCE = 200_000
OLDER_NAMES = ("datetime", "functions")  # variables that older templates read


class ChatTemplate:
    """A compiled chat template.

    Parameters
    ----------
    source
        The template, in Jinja2's language; at most 200,000 characters.
    bos_token, eos_token
        The strings of the model's BOS and EOS tokens. Templates use them as variables.
    add_bos
        Whether the model expects every text to begin with `bos_token`. :meth:`render` does not add
        the token; :class:`~eliza_ffi.chat.ChatTokenizer` adds it if the template has not.

    Raises
    ------
    ChatTemplateError
        If the template is not valid or is too long.
    """

    def __init__(
        self, source: str, bos_token: str = "", eos_token: str = "", *, add_bos: bool = False
    ) -> None:
        for name, text in (("source", source), ("bos_token", bos_token), ("eos_token", eos_token)):
            check_text(name, text)
        add_bos = check_flag("add_bos", add_bos)
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self.add_bos = add_bos
        from . import sandbox  # imports Jinja2, which takes time

        self._sandbox = sandbox
        self._older_names = {name for name in OLDER_NAMES if name in source}
        if len(source) > MAX_SOURCE:
            raise ChatTemplateError(
                f"the chat template is too long: expected at most {MAX_SOURCE:,} characters, "
                f"got {len(source):,}"
            )
        try:
            self._template = _environment().from_string(source)
        except Exception as error:  # from the parser, Python's compiler or the sandbox
            raise ChatTemplateError(f"the chat template is not valid: {_summary(error)}") from error

    def render(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **extra: Any,
    ) -> str:
        """Return a conversation as the text of a prompt.

        Parameters
        ----------
        messages
            The conversation, oldest message first; at least one message. Each is a mapping with a
            ``role`` and a ``content``. The content is a string, a sequence of parts
            ``{"type": "text", "text": ...}``, or None if the message has ``tool_calls``. If the
            template does not support parts, it gets their strings joined by line breaks. If it
            supports only parts, it gets a string as one part.
        add_generation_prompt
            Whether to end the text with the beginning of the assistant's turn.
        tools
            Definitions of tools, for templates that support tools.
        **extra
            Other variables of the template, such as ``enable_thinking`` or ``documents``.

        Raises
        ------
        InvalidArgumentError
            If the messages do not have this form.
        ChatTemplateError
            If the template fails, exceeds a limit of the sandbox, or rejects the messages. Many
            templates reject roles that do not alternate. The error contains the template's own
            message.

        Notes
        -----
        In the returned text, a control token that the template writes and the same characters in a
        content look alike. Use :meth:`~eliza_ffi.model.Model.chat_tokens` to tell them apart.
        """
        more: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, "tools": tools}
        return self.render_fitted(self.fit(messages), **more, **extra)

    def render_fitted(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **extra: Any,
    ) -> str:
        """Do the same as :meth:`render` for messages that :meth:`fit` has returned."""
        for name in ("bos_token", "eos_token", "messages"):
            if name in extra:
                raise InvalidArgumentError(
                    f"{name} cannot be passed as a template variable: ChatTemplate sets it"
                )
        more: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, **extra}
        try:
            with self._sandbox.bounded(len(messages)):
                tools = self._forms.no_tools if tools is None else tools
                return self._run(messages, tools=tools, **more)
        except self._sandbox.Rejected as error:
            raise ChatTemplateError(f"the chat template rejects the messages: {error}") from error
        except self._sandbox.LimitReached as error:
            raise ChatTemplateError(f"the chat template was stopped: {error}") from error
        except Exception as error:  # the template is a program and can raise anything
            raise ChatTemplateError(f"the chat template failed: {_summary(error)}") from error

    def fit(self, messages: Messages) -> list[dict[str, Any]]:
        """Return messages in the forms that the template supports; :meth:`render` does this itself.

        Raises
        ------
        InvalidArgumentError
            If the messages do not have the form that :meth:`render` expects.
        ChatTemplateError
            If the template exceeds a limit of the sandbox.
        """
        check_messages(messages)
        try:
            with self._sandbox.bounded(len(messages)):
                return self._forms.fit(messages)
        except self._sandbox.LimitReached as error:
            raise ChatTemplateError(f"the chat template was stopped: {error}") from error

    @lazy_property
    def thinking_format(self) -> ThinkingFormat | None:
        """The format of the model's reasoning; None if the template has no reasoning."""
        return known_thinking_format(self.source)

    def closing(self, prompt: str) -> str:
        """Return the text that ends a reasoning which a rendered prompt has opened, if any."""
        return "" if self.thinking_format is None else self.thinking_format.closing(prompt)

    @lazy_property
    def searched_texts(self) -> frozenset[str]:
        """The string constants in the template; it may search the messages for them."""
        return frozenset(self._sandbox.string_constants(_environment(), self.source))

    @lazy_property
    def _forms(self) -> MessageForms:
        return MessageForms(self._try)

    def _try(self, messages: Sequence[Mapping[str, Any]], *, tools: Any) -> str:
        """Render unchanged messages; return an empty string if the template fails."""
        try:
            return self._run(messages, add_generation_prompt=True, tools=tools)
        except self._sandbox.LimitReached:
            raise
        except Exception:  # the template may support only another form of messages
            return ""

    def _run(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        tokens = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        older = self._older_variables(variables.get("tools"))
        return str(self._template.render(messages=messages, **{**older, **variables, **tokens}))

    def _older_variables(self, tools: Any) -> dict[str, str]:
        """Return variables that older templates read instead of ``strftime_now`` and ``tools``."""
        variables = {}
        if "datetime" in self._older_names:
            variables["datetime"] = datetime.now().strftime("%b %d %Y")
        if "functions" in self._older_names:
            functions = [
                tool.get("function", tool) if isinstance(tool, Mapping) else tool
                for tool in tools or ()
            ]
            variables["functions"] = self._sandbox.to_json(functions, indent=4)
        return variables


def template_of_model(facts: Mapping[str, Any]) -> ChatTemplate:
    """Return a model's chat template, from the library's description of the model.

    Raise NoChatTemplateError if the model has none, and ChatTemplateError if it is not valid.

    >>> template_of_model(model.describe()["model"]).thinking_format is None
    True
    """
    source = check_kind("facts", facts, Mapping, "a mapping").get("chat_template")
    if source:
        return ChatTemplate(
            source,
            facts.get("bos_token") or "",
            facts.get("eos_token") or "",
            add_bos=bool(facts.get("add_bos")),
        )
    raise NoChatTemplateError(
        f"the model {facts.get('path', '')} has no chat template: "
        "write the prompt in the format that the model expects and pass it as prompt="
    )


def check_messages(messages: Messages) -> Messages:
    """Return the messages if they have the form that :meth:`ChatTemplate.render` expects."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        hint = ""
        if isinstance(messages, str):
            hint = 'for one message use [{"role": "user", "content": ...}]'
        elif isinstance(messages, Mapping):
            hint = "put a single message into a list"
        raise wrong("messages", "a sequence of mappings", messages, hint)
    if not messages:
        raise InvalidArgumentError("expected at least one message, got none")
    for i, message in enumerate(messages):
        _check_message(message, f"message {i}")
    return messages


def _check_message(message: Any, name: str) -> None:
    if not isinstance(message, Mapping):
        raise wrong(name, "a mapping", message)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise wrong(f"the role of {name}", "a non-empty string", role)
    if content is None and message.get("tool_calls"):
        return
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        for part in content:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind != "text" or not isinstance(part.get("text"), str):
                form = '{"type": "text", "text": "..."}'
                raise wrong(f"each part of the content of {name}", form, part)
    elif not isinstance(content, str):
        raise wrong(f"the content of {name}", "a string or a list of parts", content)


@functools.cache
def _environment() -> Any:
    from . import sandbox

    return sandbox.BoundedEnvironment()


def _summary(error: Exception) -> str:
    """Return the type and text of an exception on one line of at most 300 characters."""
    text = " ".join(f"{type(error).__name__}: {error}"[:1000].split())
    return text if len(text) <= 300 else text[:297] + "..."
