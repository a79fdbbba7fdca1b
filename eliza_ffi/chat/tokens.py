"""The tokens of a conversation, with control tokens where the template wrote them and nowhere else.

Rendered, a conversation is one text in which ``<|im_end|>`` from the template and ``<|im_end|>`` in
something a user said look alike. Read with special tokens parsed, a user could end their turn and
speak as the system. The rule here:

    A control token is read only where the template wrote the token's first character.

To see who wrote it, the conversation is rendered a second time with marks, private-use characters,
in place of the first characters of control tokens (mostly ``<``) in all that the caller passed.
Whatever the template does with a content, trimming, cutting or joining it, the marks show where it
went. If, put back, they give the text of the first rendering, both went the same way, and the text
is tokenized in pieces: control tokens by their ids, all between them as plain text. Where nothing
is forged, the tokens are those of the whole text.

A template may look for something in contents, mostly ``</think>``, and must find it: characters
that stand in a string of the template's own stay, unless a control token could begin with them.

Limits:

- A template that looks for control tokens themselves, or at single characters, may write something
  else for the replaced contents. Contents that spell a control token are then an error. Others are
  read whole, and a control token that such a template puts together from pieces is not noticed.
- Some vocabularies have tokens that are special to the model but not marked as control tokens
  (``<think>``, ``<tool_call>``). Tokenizers read these in any text, here as everywhere.
- Roles count as contents, except that templates may compose control tokens around them
  (``<|user|>``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..checks import check_callable, check_kind
from ..errors import InvalidArgumentError
from .template import ChatTemplate, Messages
from .vocabulary import PRIVATE_USE, Detokenize, Tokenize, Vocabulary

__all__ = ["ChatTokenizer"]


class ChatTokenizer:
    """Turns conversations into tokens.

    Parameters
    ----------
    template
    tokenize
        From a text, whether to add special tokens and whether to read them, to tokens.
    detokenize
        From tokens to text, with a keyword ``unparse_special`` for spelling special tokens out.
    """

    def __init__(self, template: ChatTemplate, tokenize: Tokenize, detokenize: Detokenize) -> None:
        self.template = check_kind("template", template, ChatTemplate, "a ChatTemplate")
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        self._tokenize = tokenize
        self._vocabulary = Vocabulary(tokenize, detokenize)

    def tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Return the tokens of a conversation.

        Parameters
        ----------
        messages
        **more
            As :meth:`ChatTemplate.render`.

        Raises
        ------
        InvalidArgumentError
            If the messages are not as they must be, or spell a control token where it cannot be
            told from the template's.
        ChatTemplateError
            If the template fails or refuses the messages.
        """
        messages = self.template.fit(messages)  # JSON among them is read before it is marked
        given = [messages, more]
        text = self.template.render(messages, **more)
        tokens = self._vocabulary.read(self._bos(text) + text)
        controls = self._vocabulary.controls(tokens)
        guard = _Guard(set(controls.values()), self.template.looked_for, text)
        guarded_messages, guarded_more = guard.cover(given)
        if not guard.used:
            return tokens
        guarded = self.template.render(guarded_messages, **guarded_more)
        if guard.uncover(guarded) == text:
            bos = self._bos(guarded)
            if bos != self._bos(text):  # the text begins with a content that spells it
                tokens = self._vocabulary.read(bos + text)
            return self._apart(tokens, bos + guarded, guard)
        if forged := self._spelled(given):
            raise _indistinct(forged)
        return tokens

    def turn(self, **more: Any) -> tuple[str, str] | None:
        """Return what the template writes before and behind the words of a user who speaks alone.

        Both are template text, as it is now: a template may write the date. None where it does
        something else with the words than write them once.

        Parameters
        ----------
        **more
            As :meth:`ChatTemplate.render`.

        Raises
        ------
        ChatTemplateError
            If the template fails or refuses a lone message of a user.
        """
        mark = next(mark for mark in map(chr, PRIVATE_USE) if mark not in self.template.source)
        words = f"{mark}Some words, 1 2 <b>{mark}"  # that show it if they are changed
        text = self.template.render([{"role": "user", "content": words}], **more)
        head, *tail = (self._bos(text) + text).split(words)
        return (head, tail[0]) if len(tail) == 1 and mark not in head + tail[0] else None

    def _apart(self, tokens: list[int], guarded: str, guard: _Guard) -> list[int]:
        """Return the tokens of a guarded text; `tokens` are those of the text without marks."""
        vocabulary = self._vocabulary
        written = vocabulary.read(guarded)
        if vocabulary.in_order(written) == vocabulary.in_order(tokens):
            return tokens
        apart: list[int] = []
        for plain, control in vocabulary.pieces(guarded, written):
            apart += self._tokenize(guard.uncover(plain), False, False) if plain else []
            apart += control
        strange = vocabulary.controls(written).keys() - vocabulary.controls(tokens).keys()
        if strange or vocabulary.in_order(apart) != vocabulary.in_order(written):
            # Control tokens overlap, or the tokenizer makes one even of plain text.
            raise _indistinct(next(iter(vocabulary.controls(tokens).values())))
        return apart

    def _spelled(self, value: Any) -> str:
        """Return a control token that a text somewhere in a value spells, or an empty text."""
        for text in _texts(value):
            if spelled := self._vocabulary.controls(self._vocabulary.read(text)):
                return next(iter(spelled.values()))
        return ""

    def _bos(self, text: str) -> str:
        """Return what to put in front of a text so that it begins as the model wants."""
        bos = self.template.bos_token
        return bos if self.template.add_bos and not text.startswith(bos) else ""


def _indistinct(forged: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the messages spell the control token {forged!r}, and the chat template uses them so that "
        "it cannot be told from the template's own: take it out of them, or, to have it read as "
        "the token, pass Model.chat_template.render(messages) as the prompt"
    )


class _Guard:
    """Marks characters of the messages, so that they can be found in what the template wrote.

    Parameters
    ----------
    controls
        The control tokens that the rendered text has.
    looked_for
        Texts that the template may look for.
    text
        The rendered text, whose characters cannot be marks.
    """

    def __init__(self, controls: set[str], looked_for: frozenset[str], text: str) -> None:
        first = sorted({control[0] for control in controls})
        present = set(text)
        free = (char for char in map(chr, PRIVATE_USE) if char not in present)
        self._marks = dict(zip(first, free, strict=False))
        if len(self._marks) < len(first):
            raise InvalidArgumentError("the messages have too many private-use characters")
        self._covering = str.maketrans(self._marks)
        self._uncovering = str.maketrans({mark: char for char, mark in self._marks.items()})
        self._controls = controls
        self._kept = sorted(filter(self._may_stay, looked_for), key=len, reverse=True)
        self.used = False

    def cover(self, value: Any) -> Any:
        """Return a copy of what a template is given, marked in all its texts."""
        if isinstance(value, str):
            return self._cover_text(value)
        if isinstance(value, Mapping):
            return {self._cover_key(key): self.cover(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover(item) for item in value]
        return value

    def uncover(self, text: str) -> str:
        """Return a text without marks."""
        return text.translate(self._uncovering)

    def _cover_key(self, key: Any) -> Any:
        # Templates ask for items by name.
        return key if isinstance(key, str) and key.isidentifier() else self.cover(key)

    def _cover_text(self, text: str) -> str:
        if not any(char in text for char in self._marks):
            return text
        self.used = True
        for kept in self._kept:
            if kept in text:
                return kept.join(map(self._cover_text, text.split(kept)))
        return text.translate(self._covering)

    def _may_stay(self, looked_for: str) -> bool:
        """Say whether a text has marked characters and none begins a control token."""
        ends = [looked_for[i:] for i, char in enumerate(looked_for) if char in self._marks]
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
