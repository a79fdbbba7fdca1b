"""Tokenize a conversation, with control tokens only where the chat template wrote their first
character. A second rendering, with markers in place of these characters in all messages, shows who
wrote them. Contents that spell a control token are an error if the template treats markers
differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..checks import check_callable, check_flag, check_kind
from ..errors import ChatTemplateError, InvalidArgumentError
from .template import ChatTemplate, Messages
from .thinking import THINKING_OFF
from .vocabulary import PRIVATE_USE, Detokenize, Tokenize, Vocabulary


class ChatTokenizer:
    """Converts conversations to tokens.

    Parameters
    ----------
    template
        The model's chat template.
    tokenize
        A function ``(text, add_special, parse_special)`` that returns the tokens of `text`.
    detokenize
        A function that returns the text of tokens. With the keyword argument
        ``unparse_special=True``, it spells special tokens out.
    """

    def __init__(self, template: ChatTemplate, tokenize: Tokenize, detokenize: Detokenize) -> None:
        self.template = check_kind("template", template, ChatTemplate, "a ChatTemplate")
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        self._tokenize = tokenize
        self._vocabulary = Vocabulary(tokenize, detokenize, partial(frame_of, template))

    def tokens(
        self,
        messages: Messages,
        *,
        continue_final_message: bool = False,
        close_reasoning: bool = False,
        **more: Any,
    ) -> list[int]:
        """Return the tokens of a conversation.

        Parameters
        ----------
        messages, **more
            As in :meth:`ChatTemplate.render`.
        continue_final_message
            Whether the model will continue the last message, which must be the assistant's. The
            tokens then end with its content, and ``add_generation_prompt`` is False.
        close_reasoning
            Whether the answer follows without reasoning. The template's variables
            ``enable_thinking`` and ``thinking`` are then False unless `more` sets them. If the
            template still ends the prompt with the mark that begins the reasoning, the mark that
            ends it follows.

        Raises
        ------
        InvalidArgumentError
            If the messages do not have the expected form, or if they spell a control token that
            cannot be distinguished from the template's own.
        ChatTemplateError
            If the template fails or rejects the messages, or does not write the content of a
            message to continue.
        """
        return self._read(messages, continue_final_message, close_reasoning, more, is_split=False)[
            0
        ]

    def split(
        self, messages: Messages, *, close_reasoning: bool = False, **more: Any
    ) -> tuple[list[int], str]:
        """Return the tokens of a conversation without the spaces at its end, and these spaces.

        The spaces belong to the answer; see :func:`~eliza_ffi.chat.prompt.split_trailing_spaces`.
        The parameters and errors are the same as in :meth:`tokens`.
        """
        return self._read(messages, False, close_reasoning, more, is_split=True)

    def _read(
        self,
        messages: Messages,
        continue_final_message: bool,
        close_reasoning: bool,
        more: dict[str, Any],
        *,
        is_split: bool,
    ) -> tuple[list[int], str]:
        messages = self.template.fit(messages)  # parses JSON arguments, before they are marked
        end = ""
        if check_flag("continue_final_message", continue_final_message):
            messages, end = self._with_end(messages)
            more = {**more, "add_generation_prompt": False}
        if check_flag("close_reasoning", close_reasoning):
            more = {**THINKING_OFF, **more}
        inputs = [messages, more]
        whole = self.template.render_fitted(messages, **more)
        text = _before(whole, end)
        closing = self.template.closing(text) if close_reasoning else ""
        text += closing
        rest = text.rstrip(" ") if is_split else text
        spaces = text[len(rest) :] if rest else ""
        text = text.removesuffix(spaces)
        tokens = self._vocabulary.read(_bos(self.template, text) + text)
        controls = self._vocabulary.controls(tokens)
        guard = _Guard(set(controls.values()), self.template.searched_texts, whole)
        guarded_messages, guarded_more = guard.cover(inputs)
        if not guard.used:
            return tokens, spaces
        guarded = self.template.render_fitted(guarded_messages, **guarded_more)
        guarded = (_before(guarded, end) + closing).removesuffix(spaces)
        if guard.uncover(guarded) == text:
            bos = _bos(self.template, guarded)
            if bos != _bos(self.template, text):  # the text begins with a content that spells BOS
                tokens = self._vocabulary.read(bos + text)
            return self._apart(tokens, bos + guarded, guard), spaces
        if forged := self._spelled(inputs):
            raise _indistinct(forged)
        return tokens, spaces

    def _with_end(self, messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        """Mark the end of the last message; return the messages and the mark."""
        *earlier, last = messages
        content = last.get("content")
        if last["role"] != "assistant" or last.get("tool_calls") or content is None:
            raise InvalidArgumentError(
                "continue_final_message needs a last message of the assistant with a content and "
                "without tool calls"
            )
        present = set().union(*_texts(messages))
        end = next(char for char in map(chr, PRIVATE_USE) if char not in present)
        if isinstance(content, str):
            content += end
        else:
            *parts, part = content or [{"type": "text", "text": ""}]
            content = [*parts, {**part, "text": part["text"] + end}]
        return [*earlier, {**last, "content": content}], end

    def around(
        self, roles: Sequence[str], *, close_reasoning: bool = False, **more: Any
    ) -> list[str] | None:
        """Return the template text around the contents of a conversation with these roles.

        `roles` has the role of each message, such as ``["user"]``. `close_reasoning` is as in
        :meth:`tokens`, and `more` as in :meth:`ChatTemplate.render`. The list begins with the text
        before the first content and ends with the text after the last one. Do not keep it: it may
        contain the current date. It is None if the template does not write the contents in order,
        each exactly once and unchanged.
        Raise ChatTemplateError if the template fails or rejects messages with these roles.
        """
        if not close_reasoning:
            return _around(self.template, roles, **more)
        texts = _around(self.template, roles, **{**THINKING_OFF, **more})
        if texts is not None:
            texts[-1] += self.template.closing(texts[-1])
        return texts

    def _apart(self, tokens: list[int], guarded: str, guard: _Guard) -> list[int]:
        """Return the tokens of a conversation, with control tokens only from the template.
        `guarded` is the text with markers; `tokens` are the tokens without markers."""
        vocabulary = self._vocabulary
        written = vocabulary.read(guarded)
        if vocabulary.in_order(written) == vocabulary.in_order(tokens):
            return tokens
        apart: list[int] = []
        for plain, control in vocabulary.pieces(guarded, written):
            apart += vocabulary.plain(guard.uncover(plain)) if plain else []
            apart += control
        strange = vocabulary.controls(written).keys() - vocabulary.controls(tokens).keys()
        if strange or vocabulary.in_order(apart) != vocabulary.in_order(written):
            # Control tokens overlap, or the tokenizer recognizes one even in plain text.
            raise _indistinct(next(iter(vocabulary.controls(tokens).values())))
        return apart

    def _spelled(self, value: Any) -> str:
        """Return a control token that a string within a value spells, or an empty string."""
        for text in _texts(value):
            if spelled := self._vocabulary.controls(self._vocabulary.read(text)):
                return next(iter(spelled.values()))
        return ""


def frame_of(template: ChatTemplate) -> str:
    """Return the text that a template writes around the contents of a conversation, without the
    prompt for the next answer; empty if the template rejects an ordinary conversation."""
    roles = ["user", "assistant", "user"]
    try:
        return "\n".join(_around(template, roles, add_generation_prompt=False) or ())
    except ChatTemplateError:
        return ""


def _around(template: ChatTemplate, roles: Sequence[str], **more: Any) -> list[str] | None:
    mark = next(mark for mark in map(chr, PRIVATE_USE) if mark not in template.source)
    # A template that escapes HTML changes these contents.
    contents = [f"{mark}{i}: some words, 1 2 <b>{mark}" for i in range(len(roles))]
    messages = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
    ]
    text = template.render(messages, **more)
    rest = _bos(template, text) + text
    texts = []
    for content in contents:
        before, _, rest = rest.partition(content)
        texts.append(before)
    texts.append(rest)
    is_unchanged = text.count(mark) == 2 * len(roles) and not any(mark in each for each in texts)
    return texts if is_unchanged else None


def _bos(template: ChatTemplate, text: str) -> str:
    """Return BOS if the model expects it and `text` lacks it; an empty string otherwise."""
    bos = template.bos_token
    return bos if template.add_bos and not text.startswith(bos) else ""


def _before(text: str, end: str) -> str:
    """Return the text before a mark, or the whole text if there is no mark."""
    if not end:
        return text
    before, found, _ = text.rpartition(end)
    if not found:
        raise ChatTemplateError(
            "the chat template does not write the content of the last message as it is, so the "
            "message cannot be continued"
        )
    return before


def _indistinct(forged: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the messages spell the control token {forged!r}, and with this chat template it cannot "
        "be distinguished from the template's own control tokens: remove it from the "
        "messages, or put a space into it"
    )


class _Guard:
    """Replaces characters of the messages with markers, to find them in the rendered text, in which
    `controls` are the control tokens. The template may search for the strings `searched_texts`."""

    def __init__(self, controls: set[str], searched_texts: frozenset[str], text: str) -> None:
        first = sorted({control[0] for control in controls})
        present = set(text)
        free = (char for char in map(chr, PRIVATE_USE) if char not in present)
        self._marks = dict(zip(first, free, strict=False))
        if len(self._marks) < len(first):
            raise InvalidArgumentError(
                "the messages contain too many private-use characters from U+F0000 to U+FFFFD; "
                f"expected at least {len(first)} to be unused, got {len(self._marks)}"
            )
        self._covering = str.maketrans(self._marks)
        self._uncovering = str.maketrans({mark: char for char, mark in self._marks.items()})
        self._controls = controls
        self._unmarked = sorted(filter(self._may_stay, searched_texts), key=len, reverse=True)
        self.used = False

    def cover(self, value: Any) -> Any:
        """Return a copy of messages or variables with markers in all strings."""
        if isinstance(value, str):
            if self._marks.keys().isdisjoint(value):
                return value
            self.used = True
            for unmarked in self._unmarked:
                if unmarked in value:
                    return unmarked.join(map(self.cover, value.split(unmarked)))
            return value.translate(self._covering)
        if isinstance(value, Mapping):
            covered = {}
            for key, item in value.items():
                # Templates look up items by name, so names must not change.
                is_name = isinstance(key, str) and key.isidentifier()
                covered[key if is_name else self.cover(key)] = self.cover(item)
            return covered
        if isinstance(value, list | tuple):
            return [self.cover(item) for item in value]
        return value

    def uncover(self, text: str) -> str:
        """Return `text` with its markers replaced by the original characters."""
        return text.translate(self._uncovering)

    def _may_stay(self, searched_texts: str) -> bool:
        """Return whether a string may stay unmarked: no control token may begin at a character to
        mark."""
        ends = [searched_texts[i:] for i, char in enumerate(searched_texts) if char in self._marks]
        return bool(ends) and not any(
            end.startswith(control) or control.startswith(end)
            for end in ends
            for control in self._controls
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
