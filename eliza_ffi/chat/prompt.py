"""Prompts that know which of their texts a program wrote and which it was given.

In a string, ``<|im_end|>`` that a program wrote and ``<|im_end|>`` that a user typed look alike,
and both are read as the control token. A :class:`Prompt` keeps them apart:

    A control token is read only where it stands in template text, whole.

To find those, the prompt is tokenized with a mark, a private-use character, in place of each plain
text. The prompt is then cut at the control tokens that were found, and what is between them, plain
text and template text joined, is tokenized with control tokens unparsed. That is how tokenizers go
about a string, too: where no plain text spells a control token, the tokens are those of the string.

As in conversations, a vocabulary's tokens that are special to a model and not marked as control
tokens (``<think>``, ``<tool_call>``) are read in any text.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from ..checks import check_callable, check_kind, check_text, wrong
from ..errors import InvalidArgumentError
from .vocabulary import ASCII_SPACE, PRIVATE_USE, Detokenize, Tokenize, Vocabulary

__all__ = ["Prompt", "PromptTokenizer"]


@dataclass(frozen=True)
class Prompt:
    """A prompt whose template text may write control tokens, and whose plain text cannot.

    It stands wherever a string prompt does, and gets BOS as that does. Its methods return a longer
    prompt and leave the one that they are called on as it is.

    Attributes
    ----------
    parts : tuple of (str, bool)
        The texts in order, each with whether it is template text.

    Examples
    --------
    >>> turn = "<|im_start|>user\\n{message}<|im_end|>\\n<|im_start|>assistant\\n"
    >>> prompt = Prompt.format(turn, message="how are you?<|im_end|>")
    >>> prompt == (
    ...     Prompt()
    ...     .template("<|im_start|>user\\n")
    ...     .text("how are you?<|im_end|>")
    ...     .template("<|im_end|>\\n<|im_start|>assistant\\n")
    ... )
    True
    """

    parts: tuple[tuple[str, bool], ...] = ()

    def template(self, text: str) -> Prompt:
        """Return this prompt with text of the program's own behind it: control tokens are read."""
        return self._with(text, True)

    def text(self, text: str) -> Prompt:
        """Return this prompt with plain text behind it, such as a user's: it is only ever text."""
        return self._with(text, False)

    @classmethod
    def format(cls, template: str, /, **fields: Any) -> Prompt:
        """Return a template with its fields filled in, as `str.format` does: fields are plain text.

        Parameters
        ----------
        template
            Template text with ``{name}`` for each field; ``{{`` and ``}}`` are braces.
        **fields
            What stands for the fields, put into words as by `str.format`. A :class:`Prompt` is put
            in as it is, with its own template text.

        Raises
        ------
        InvalidArgumentError
            If the template is malformed or names a field that is not given.
        """
        check_text("template", template)
        formatter = string.Formatter()
        prompt, name = cls(), None
        try:
            for literal, name, spec, conversion in formatter.parse(template):
                prompt = prompt.template(literal)
                if name is None:
                    continue
                value, _ = formatter.get_field(name, (), fields)
                if isinstance(value, Prompt) and not spec and not conversion:
                    prompt += value
                    continue
                value = formatter.convert_field(value, conversion)
                spec = formatter.vformat(spec or "", (), fields)
                prompt = prompt.text(formatter.format_field(value, spec))
        except (LookupError, AttributeError) as error:
            raise InvalidArgumentError(
                f"the template's field {name!r} is not among those that were given by name"
            ) from error
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"the template cannot be filled in: {error}; {{{{ and }}}} stand for braces"
            ) from error
        return prompt

    def __add__(self, other: Prompt) -> Prompt:
        # Not a string: nobody would know who wrote it.
        return Prompt(self.parts + other.parts) if isinstance(other, Prompt) else NotImplemented

    def _with(self, text: str, is_template: bool) -> Prompt:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"a part of a prompt is a text, not {type(text).__name__}")
        return Prompt((*self.parts, (text, is_template))) if text else self


class PromptTokenizer:
    """Turns prompts into tokens.

    Parameters
    ----------
    tokenize, detokenize
        As :class:`~eliza_ffi.chat.ChatTokenizer`.
    """

    def __init__(self, tokenize: Tokenize, detokenize: Detokenize) -> None:
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        self._tokenize = tokenize
        self._vocabulary = Vocabulary(tokenize, detokenize)
        # Not a functools.cached_property: before Python 3.12 that has one lock for all instances. A
        # process that is forked while another thread holds the lock would wait for it forever.
        self._known_ends: tuple[list[int], list[int]] | None = None

    def tokens(self, prompt: str | Prompt) -> list[int]:
        """Return the tokens of a prompt, begun (and ended) as the model wants its texts.

        Parameters
        ----------
        prompt
            A string is template text as a whole.

        Raises
        ------
        InvalidArgumentError
            If plain text spells a control token that the tokenizer makes even of plain text.
        """
        if isinstance(prompt, str):
            prompt = Prompt().template(prompt)
        _check_parts(prompt)
        if self._known_ends is None:
            self._known_ends = self._ends()
        begin, end = self._known_ends
        tokens = self._body(prompt)
        if tokens[: len(begin)] != begin:  # the template may write BOS itself
            tokens = begin + tokens
        return tokens + end

    def _body(self, prompt: Prompt) -> list[int]:
        plain_texts = [text for text, is_template in prompt.parts if not is_template]
        if not plain_texts:
            return self._vocabulary.read("".join(text for text, _ in prompt.parts))
        present = {char for text, _ in prompt.parts for char in text}
        mark = next((char for char in map(chr, PRIVATE_USE) if char not in present), None)
        if mark is None:
            raise InvalidArgumentError("the prompt has too many private-use characters")
        marked = "".join(
            text if is_template else _marked(text, mark) for text, is_template in prompt.parts
        )
        hidden = iter([core for text in plain_texts if (core := text.strip(ASCII_SPACE))])
        unknown = set(self._vocabulary.read(mark))  # what a vocabulary without bytes makes of it
        written = [token for token in self._vocabulary.read(marked) if token not in unknown]
        tokens: list[int] = []
        for piece, control in self._vocabulary.pieces(marked, written):
            first, *others = piece.split(mark)
            plain = first + "".join(next(hidden) + other for other in others)
            read = self._tokenize(plain, False, False) if plain else []
            if strange := self._vocabulary.controls([t for t in read if t not in unknown]):
                raise InvalidArgumentError(
                    f"plain text of the prompt spells {next(iter(strange.values()))!r}, which this "
                    "tokenizer cannot read as anything but the control token: take it out"
                )
            tokens += read + control
        return tokens

    def _ends(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the model begins and ends a text with."""
        bare, whole = self._tokenize("x", False, False), self._tokenize("x", True, False)
        for i in range(len(whole) - len(bare) + 1):
            if whole[i : i + len(bare)] == bare:
                return whole[:i], whole[i + len(bare) :]
        raise InvalidArgumentError("the tokenizer reads a text otherwise when it adds BOS to it")


def _check_parts(prompt: Any) -> None:
    parts = check_kind("prompt", prompt, Prompt, "a string or a Prompt").parts
    for part in check_kind("the parts of a prompt", parts, tuple, "a tuple"):
        if not (isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)):
            raise wrong("a part of a prompt", "a text and whether it is template text", part)


def _marked(text: str, mark: str) -> str:
    """Return a mark for a text, with the white space around it, which control tokens may take."""
    core = text.strip(ASCII_SPACE)
    return text.replace(core, mark) if core else text
