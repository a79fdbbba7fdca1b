"""Find the control tokens of a vocabulary, and split text at them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from .._lazy import lazy_property
from ..structured.token_texts import continued_tokens

PRIVATE_USE = range(0xF0000, 0xFFFFE)
ASCII_SPACE = " \t\n\v\f\r"

MARK = re.compile(r"[^\w\s](?=.*[^\W\d_]).+[^\w\s]", re.DOTALL)
"""The form of a token that begins or ends a turn: a word between punctuation marks."""

Tokenize = Callable[[str, bool, bool], list[int]]
"""Returns the tokens of ``(text, add_special, parse_special)``."""

Detokenize = Callable[..., str]
"""Returns the text of tokens; with ``unparse_special=True``, special tokens are spelled out."""


class Vocabulary:
    """A tokenizer and its control tokens. Tokens that look like ``<|user|>`` or ``[INST]`` in
    the text that `frame` returns, which the chat template writes around contents, count as such,
    too."""

    def __init__(
        self, tokenize: Tokenize, detokenize: Detokenize, frame: Callable[[], str] = str
    ) -> None:
        self._tokenize = tokenize
        self._detokenize = detokenize
        self._frame = frame
        self._known: dict[int, str] = {}
        self._taking_space: dict[int, tuple[bool, bool]] = {}

    def plain(self, text: str) -> list[int]:
        """Return the tokens of `text` without any control token. The name of a token that the
        tokenizer recognizes in any text is divided after its first character."""
        parts: list[str] = []
        begin = 0
        marks = self._marks.values()
        while starts := [at for mark in marks if (at := text.find(mark, begin)) >= 0]:
            parts.append(text[begin : min(starts) + 1])
            begin = min(starts) + 1
        parts.append(text[begin:])
        tokens = self._tokenize(parts[0], False, False)
        for part in parts[1:]:
            tokens += continued_tokens(lambda text: self._tokenize(text, False, False), part)
        return tokens

    @lazy_property
    def _marks(self) -> dict[int, str]:
        """The tokens that begin and end turns but are not control tokens, with their texts."""
        tokens = self._tokenize(self._frame(), False, False)
        texts = {token: self._detokenize([token], unparse_special=False) for token in set(tokens)}
        return {token: text for token, text in texts.items() if MARK.fullmatch(text)}

    def read(self, text: str) -> list[int]:
        """Return the tokens of `text`; control tokens that it spells out are recognized."""
        return self._tokenize(text, False, True)

    def controls(self, tokens: Collection[int]) -> dict[int, str]:
        """Return the control tokens among `tokens`, with the text of each."""
        known = self._texts_of(tokens)
        return {token: text for token in set(tokens) if (text := known[token])}

    def in_order(self, tokens: Sequence[int]) -> list[int]:
        known = self._texts_of(tokens)
        return [token for token in tokens if known[token]]

    def pieces(self, text: str, tokens: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """Split `text` at its control tokens: yield each plain piece and the token after it, and
        the last piece with an empty list. Some control tokens include the white space next to them,
        as in phi-3."""
        takes_right = False
        for token in self.in_order(tokens):
            plain, _, text = text.partition(self._known[token])
            plain = plain.lstrip(ASCII_SPACE) if takes_right else plain
            takes_left, takes_right = self._takes_space(token)
            yield plain.rstrip(ASCII_SPACE) if takes_left else plain, [token]
        yield text.lstrip(ASCII_SPACE) if takes_right else text, []

    def _takes_space(self, token: int) -> tuple[bool, bool]:
        """Return whether a control token includes white space before it, and after it."""
        if token not in self._taking_space:
            control = self._texts_of([token])[token]
            before, after = self.read(f" {control}"), self.read(f"{control} ")
            self._taking_space[token] = (before == [token], after == [token])
        return self._taking_space[token]

    def _texts_of(self, tokens: Collection[int]) -> dict[int, str]:
        """Return the texts of control tokens, and an empty string for each other token."""
        for token in set(tokens).difference(self._known):
            plain = self._detokenize([token], unparse_special=False)
            spelled = self._detokenize([token], unparse_special=True)
            self._known[token] = spelled if not plain or token in self._marks else ""
        return self._known
