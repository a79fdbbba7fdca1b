"""Prompts of template text, written by a program, and plain text, such as a user's: a control token
is recognized only if all of its characters are template text."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._lazy import lazy_property
from ..checks import check_callable, check_kind, check_text, wrong
from ..errors import InvalidArgumentError
from .vocabulary import ASCII_SPACE, PRIVATE_USE, Detokenize, Tokenize, Vocabulary


@dataclass(frozen=True)
class Prompt:
    """A prompt of template text, which may contain control tokens, and plain text, which cannot.

    Pass it wherever a string prompt is accepted. BOS is added as for a string. Prompts are
    immutable: their methods return a new, longer prompt.

    Attributes
    ----------
    parts : tuple of (str, bool)
        The strings in order; the bool is True for template text.

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
        """Return this prompt with template text appended; its control tokens are recognized."""
        return self._with(text, True)

    def text(self, text: str) -> Prompt:
        """Return this prompt with plain text appended; it never becomes a control token."""
        return self._with(text, False)

    @classmethod
    def format(cls, template: str, /, **fields: Any) -> Prompt:
        """Return a prompt from a template string; the values of its fields become plain text.

        Parameters
        ----------
        template
            Template text with ``{name}`` for each field. Write ``{{`` and ``}}`` for braces.
        **fields
            The values of the fields, converted to text as by `str.format`. The parts of a
            :class:`Prompt` are inserted unchanged, so its template text stays template text.

        Raises
        ------
        InvalidArgumentError
            If the template is malformed, or if it names a field that was not passed.
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
                f"template: expected a keyword argument for every field, got none for {name!r}"
            ) from error
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"the template cannot be formatted: {error}; write {{{{ and }}}} for braces"
            ) from error
        return prompt

    def __add__(self, other: Prompt) -> Prompt:
        # Strings are rejected: they may be template text or plain text.
        return Prompt(self.parts + other.parts) if isinstance(other, Prompt) else NotImplemented

    def _with(self, text: str, is_template: bool) -> Prompt:
        check_text("text", text)
        return Prompt((*self.parts, (text, is_template))) if text else self


def split_trailing_spaces(prompt: str | Prompt) -> tuple[str | Prompt, str]:
    """Return a prompt without the spaces at its end, and these spaces. They become a part of the
    labels, because in most vocabularies a space belongs to the word after it. A prompt of spaces
    keeps them."""
    parts = [(prompt, True)] if isinstance(prompt, str) else list(prompt.parts)
    spaces = ""
    while parts:
        text, is_template = parts.pop()
        rest = text.rstrip(" ")
        spaces += text[len(rest) :]
        if rest:
            shorter = Prompt((*parts, (rest, is_template)))
            return (rest if isinstance(prompt, str) else shorter), spaces
    return prompt, ""


class PromptTokenizer:
    """Converts prompts to tokens.

    Parameters
    ----------
    tokenize, detokenize
        As in :class:`~eliza_ffi.chat.ChatTokenizer`.
    frame
        Returns the text that the model's chat template writes around contents. Its tokens that
        begin and end turns are recognized only in template text.
    """

    def __init__(
        self, tokenize: Tokenize, detokenize: Detokenize, frame: Callable[[], str] = str
    ) -> None:
        check_callable("tokenize", tokenize)
        check_callable("detokenize", detokenize)
        self._tokenize = tokenize
        self._vocabulary = Vocabulary(tokenize, detokenize, frame)

    def tokens(self, prompt: str | Prompt) -> list[int]:
        """Return the tokens of a prompt, with BOS if the model's tokenizer adds it.

        BOS is not repeated if the prompt's template text already begins with it.

        Parameters
        ----------
        prompt
            A string, which is template text as a whole, or a Prompt.

        Raises
        ------
        InvalidArgumentError
            If plain text contains a control token that the tokenizer recognizes even in plain text.
        """
        if isinstance(prompt, str):
            return self._with_ends(self._tokenize(prompt, False, True))
        _check_parts(prompt)
        return self._with_ends([t for each in self._pieces(prompt) for t in self._plain(*each)])

    def filled(self, prompt_with: Callable[[str], Prompt]) -> Callable[[str], list[int]]:
        """Return a function that does the same as ``tokens(prompt_with(text))``, and is faster.

        `prompt_with` puts a text into one plain part of a prompt that is otherwise the same. The
        text must neither be empty nor begin or end with white space.
        """
        bare = prompt_with("x")
        present = {char for text, _ in bare.parts for char in text}
        hole = next(char for char in map(chr, PRIVATE_USE) if char not in present)
        before: list[int] = []
        after: list[int] = []
        pieces = list(self._pieces(prompt_with(hole)))
        at = next(i for i, (plain, *_) in enumerate(pieces) if hole in plain)
        for i, each in enumerate(pieces):
            if i != at:
                (before if i < at else after).extend(self._plain(*each))
        (left, right), control, unknown = pieces[at][0].split(hole), *pieces[at][1:]

        def tokens(text: str) -> list[int]:
            read = self._plain(f"{left}{text}{right}", control, unknown)
            return self._with_ends([*before, *read, *after])

        return tokens

    def _pieces(self, prompt: Prompt) -> Iterator[tuple[str, list[int], set[int]]]:
        """Split a prompt at its control tokens. Yield the text of each piece, the control token
        after it, and tokens to ignore in the text."""
        plain_texts = [text for text, is_template in prompt.parts if not is_template]
        if not plain_texts:
            yield "", self._vocabulary.read("".join(text for text, _ in prompt.parts)), set()
            return
        present = {char for text, _ in prompt.parts for char in text}
        mark = next((char for char in map(chr, PRIVATE_USE) if char not in present), None)
        if mark is None:
            raise InvalidArgumentError(
                "the prompt contains all private-use characters from U+F0000 to U+FFFFD; "
                "expected at least one to be unused"
            )
        marked = "".join(
            text if is_template else _marked(text, mark) for text, is_template in prompt.parts
        )
        hidden = iter([core for text in plain_texts if (core := text.strip(ASCII_SPACE))])
        # A vocabulary without byte tokens reads the marker as the unknown token.
        unknown = set(self._vocabulary.read(mark))
        written = [token for token in self._vocabulary.read(marked) if token not in unknown]
        for piece, control in self._vocabulary.pieces(marked, written):
            first, *others = piece.split(mark)
            yield first + "".join(next(hidden) + other for other in others), control, unknown

    def _plain(self, text: str, control: list[int], unknown: set[int]) -> list[int]:
        read = self._vocabulary.plain(text) if text else []
        if strange := self._vocabulary.controls(set(read) - unknown):
            raise InvalidArgumentError(
                f"plain text of the prompt contains {next(iter(strange.values()))!r}, which "
                "this tokenizer always reads as a control token: remove it"
            )
        return read + control

    def _with_ends(self, tokens: list[int]) -> list[int]:
        begin, end = self._ends
        if tokens[: len(begin)] != begin:  # the template may write BOS itself
            tokens = begin + tokens
        return tokens + end

    @lazy_property
    def _ends(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the tokenizer adds before and after every text."""
        bare, whole = self._tokenize("x", False, False), self._tokenize("x", True, False)
        for i in range(len(whole) - len(bare) + 1):
            if whole[i : i + len(bare)] == bare:
                return whole[:i], whole[i + len(bare) :]
        raise InvalidArgumentError(
            "expected the tokenizer to give the same tokens for 'x' with and without BOS, "
            f"got {bare} and {whole}"
        )


def _check_parts(prompt: Any) -> None:
    parts = check_kind("prompt", prompt, Prompt, "a string or a Prompt").parts
    for part in check_kind("the parts of a prompt", parts, tuple, "a tuple"):
        if not (isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)):
            raise wrong(
                "each part of a prompt", "a string and a bool (True for template text)", part
            )


def _marked(text: str, mark: str) -> str:
    """Replace plain text with a marker. Keep outer white space: control tokens may include it."""
    core = text.strip(ASCII_SPACE)
    return text.replace(core, mark) if core else text
